// A real server of its own for a test: on a free port, on a new database, gone when the test is over.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, readlink, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect as baseExpect, test as base } from '@playwright/test';

/** An admin's API token, given to the server at its first start. */
const TOKEN = `jl_${'e2e-'.repeat(10)}abc`;

export class Server {
  private constructor(
    readonly url: string,
    private readonly port: number,
    private child: ChildProcess,
    private readonly folder: string,
    private readonly output: string[],
  ) {}

  readonly token = TOKEN;

  static async start(): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), 'job-leases-'));
    const port = await freePort();
    const output: string[] = [];
    const server = new Server(`http://127.0.0.1:${port}`, port, launch(port, folder, output), folder, output);
    try {
      await server.untilReady(port);
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  /** Ends the process, and starts another one on the same port and database. */
  async restart(): Promise<void> {
    await this.end();
    this.child = launch(this.port, this.folder, this.output);
    await this.untilReady(this.port);
  }

  /** Waits until the port answers, and makes sure that it is this very process that does. */
  private async untilReady(port: number): Promise<void> {
    for (let attempt = 0; attempt < 300; attempt += 1) {
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        throw new Error(`the server did not start:\n${this.output.join('')}`);
      }
      const ready = await fetch(`${this.url}/readyz`).catch(() => undefined);
      if (ready?.ok) {
        if (!(await listens(this.child.pid, port))) throw new Error(`another process listens on port ${port}`);
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`the server is not ready after 30 s:\n${this.output.join('')}`);
  }

  /** Calls an operation with the admin's token, or another one. */
  async call(
    operation: string,
    request: object,
    token = TOKEN,
    signal?: AbortSignal,
  ): Promise<{ status: number; body: any }> {
    const response = await fetch(`${this.url}/api/v1/${operation}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(request),
      signal,
    });
    return { status: response.status, body: await response.json() };
  }

  async stop(): Promise<void> {
    await this.end();
    await rm(this.folder, { recursive: true, force: true });
  }

  private async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, 'exit');
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 15_000);
    await gone;
    clearTimeout(timer);
  }
}

function launch(port: number, folder: string, output: string[]): ChildProcess {
  const program = process.env.JOB_LEASES_PROGRAM;
  if (!program) throw new Error('JOB_LEASES_PROGRAM must name the server to test; `cargo xtask test end2end` sets it');
  const database = `sqlite:${join(folder, 'test.db')}`;
  const child = spawn(program, ['serve', '--listen', `127.0.0.1:${port}`, '--database', database], {
    env: { ...process.env, JOB_LEASES_BOOTSTRAP_TOKEN: TOKEN },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stdout?.on('data', (text) => output.push(String(text)));
  child.stderr?.on('data', (text) => output.push(String(text)));
  return child;
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Whether the process holds the socket that listens on the port, by what the kernel says. */
async function listens(pid: number | undefined, port: number): Promise<boolean> {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const sockets = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/));
  const LISTEN = '0A';
  const socket = sockets.find((columns) => columns[1]?.endsWith(`:${hex}`) && columns[3] === LISTEN);
  if (!socket) return false;
  const folder = `/proc/${pid}/fd`;
  const files = await Promise.all((await readdir(folder)).map((file) => readlink(join(folder, file)).catch(() => '')));
  return files.includes(`socket:[${socket[9]}]`);
}

/** `server`: a server for one test. `complaints`: what the page said on the console or threw; it should stay empty. */
export const test = base.extend<{ server: Server; complaints: string[] }>({
  server: async ({}, use) => {
    const server = await Server.start();
    await use(server);
    await server.stop();
  },
  complaints: async ({ page }, use) => {
    const complaints: string[] = [];
    page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => complaints.push(`thrown: ${error.message}`));
    await use(complaints);
  },
});

/** Patient: a busy machine is no fault of the console's. */
export const expect = baseExpect.configure({ timeout: 30_000 });
