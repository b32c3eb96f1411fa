import { defineConfig } from '@playwright/test';

// `cargo xtask test end2end` sets JOB_LEASES_PROGRAM (the server to start), JOB_LEASES_SITE (its optimised site, which the
// server reads from the environment) and CHROMIUM. Each test starts a server of its own, on a free port and an empty folder.
export default defineConfig({
  projects: [
    { name: 'tests', testDir: 'tests' },
    { name: 'screenshots', testDir: 'screenshots' },
  ],
  reporter: 'list',
  forbidOnly: true,
  retries: 0,
  workers: 1,
  timeout: 60_000,
  use: {
    browserName: 'chromium',
    trace: 'retain-on-failure',
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
});
