// Every page in every state that it has, in the sizes and themes people have: `cargo xtask screenshots` writes them to
// `end2end/pictures`, to be looked at.

import { join } from 'node:path';

import type { Page } from '@playwright/test';

import { type Server, test } from '../tests/server';
import { signIn } from '../tests/steps';

const WIDTHS = (process.env.WIDTHS ?? '390,1280,1920').split(',').map(Number);
const HEIGHTS: Record<number, number> = { 320: 640, 390: 844, 1280: 800, 1920: 1080, 3840: 2160 };
const KEY = 'nightly/report';

/** Goes to a page and waits until it is alive. */
async function open(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await page.getByRole('status').getByText('Live').waitFor();
}

/** A picture of what is shown now, in each size and theme. */
async function take(page: Page, name: string): Promise<void> {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: HEIGHTS[width] ?? 800 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      const path = join(import.meta.dirname, '../pictures', `${name}-${width}-${colorScheme}.png`);
      await page.screenshot({ path, animations: 'disabled' });
    }
  }
}

/** What a small team's evening looks like. */
async function populate(server: Server): Promise<() => void> {
  const ttl_ms = 3_600_000;
  const jobs = ['invoices', 'thumbnails', 'search-index', 'mail-digest', 'exports', 'cleanup', 'backup', 'rates'];
  for (let n = 0; n < 40; n += 1) {
    const job = jobs[n % jobs.length];
    const lease_key = `${job}/${String(n).padStart(3, '0')}`;
    const owner = `worker-${(n * 7) % 5}.eu-central`;
    const { body } = await server.call('leases/acquire', { lease_key, owner, job_key: job, ttl_ms: ttl_ms - n * 60_000 });
    if (n % 3 === 0) await server.call('leases/release', { lease_key, lease_id: body.lease_id });
    if (n % 7 === 1) await server.call('leases/break', { lease_key, reason: 'stuck on a dead disk', grace_ms: 0 });
    if (n % 4 === 2) await server.call('leases/acquire', { lease_key, owner: 'worker-9.us-east' });
  }
  const held = await server.call('leases/acquire', {
    lease_key: KEY,
    owner: 'worker-1.eu-central',
    job_key: 'report',
    ttl_ms,
    subjects: ['customer:acme', 'invoice:2041'],
    metadata: { build: '2026.12.1', region: 'eu' },
  });
  for (let n = 0; n < 12; n += 1) {
    await server.call('leases/renew', { lease_key: KEY, lease_id: held.body.lease_id });
  }
  const waiting = new AbortController();
  for (const owner of ['worker-2.eu-central', 'worker-3.eu-central']) {
    void server.call('leases/acquire', { lease_key: KEY, owner, wait_ms: 60_000 }, undefined, waiting.signal).catch(() => {});
  }
  await server.call('leases/acquire', { lease_key: 'payroll/run', owner: 'worker-4.eu-central', ttl_ms });
  await server.call('leases/break', { lease_key: 'payroll/run', reason: 'wrong input file', grace_ms: 3_000_000 });
  await server.call('leases/quarantine', { lease_key: 'payroll/export', reason: 'bad data since 22:10' });
  return () => waiting.abort();
}

test('the console', async ({ page, server }) => {
  test.setTimeout(600_000);
  await page.goto(server.url);
  await take(page, 'sign-in');
  await page.goto(`${server.url}/sign-in?link=used`);
  await take(page, 'sign-in-refused');
  await signIn(page, server);
  await take(page, 'leases-empty');

  const leave = await populate(server);
  await open(page, server.url);
  await take(page, 'leases');
  await open(page, `${server.url}/?q=owner%3Aworker-3.eu-central+status%3Aheld`);
  await take(page, 'leases-found');
  await open(page, `${server.url}/?q=colour%3Ared`);
  await take(page, 'leases-problem');
  await open(page, `${server.url}/?q=key%3Anothing`);
  await take(page, 'leases-none');
  await open(page, server.url);
  await page.getByRole('button', { name: 'How to find leases' }).click();
  await take(page, 'leases-help');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Account and appearance' }).click();
  await take(page, 'account');
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await take(page, 'keys');
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await page.getByRole('option').first().waitFor();
  await take(page, 'search');
  await page.keyboard.type('mail');
  await page.getByRole('option', { name: 'mail-digest' }).first().waitFor();
  await take(page, 'search-found');
  await open(page, `${server.url}/core/find?q=mail`);
  await take(page, 'find');
  await open(page, `${server.url}/core/routes`);
  await take(page, 'routes');

  await open(page, `${server.url}/core/leases/${KEY}`);
  await take(page, 'key-held');
  await page.getByRole('button', { name: 'Force-release' }).first().click();
  await take(page, 'key-force-release');
  for (const [name, key] of Object.entries({
    'key-breaking': 'payroll/run',
    'key-quarantined': 'payroll/export',
    'key-free': 'invoices/000',
    'key-unknown': 'no/such/key',
  })) {
    await open(page, `${server.url}/core/leases/${key}`);
    await take(page, name);
  }
  await open(page, `${server.url}/core/audit`);
  await take(page, 'timeline');
  await page.goto(`${server.url}/nowhere`);
  await take(page, 'not-found');

  await open(page, server.url);
  leave();
  await server.stop();
  await page.getByRole('status').getByText('Live').waitFor({ state: 'detached' });
  await take(page, 'leases-stale');
});
