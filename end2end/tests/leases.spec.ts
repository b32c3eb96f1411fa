// The way from a rule to the browser: a lease that is taken, renewed and left to expire, as a person sees it.

import type { Page } from '@playwright/test';

import { expect, test } from './server';
import { expectAccessible, signIn } from './steps';

/** Seconds left, as the row of a key shows them; NaN if it shows none. */
async function secondsLeft(page: Page, key: string): Promise<number> {
  const text = await page.getByRole('row', { name: key }).innerText();
  const [, minutes, seconds] = /(?:(\d+) min )?(\d+) s left/.exec(text) ?? [];
  return Number(minutes ?? 0) * 60 + Number(seconds ?? Number.NaN);
}

test.slow();

test('a lease appears, counts down, is renewed and expires', async ({ page, server, complaints }) => {
  await page.goto(server.url);
  await expectAccessible(page);
  await signIn(page, server);
  await expect(page.getByText('No lease has been taken yet')).toBeVisible();
  await expectAccessible(page);

  const key = 'nightly/report';
  const lease = await server.call('leases/acquire', { lease_key: key, owner: 'worker-1', ttl_ms: 600_000 });
  expect(lease.status).toBe(200);
  const row = page.getByRole('row', { name: key });
  await expect(row).toContainText('worker-1');
  await expect(row).toContainText('held');
  await expect(row).toContainText(String(lease.body.fencing_token));

  const before = await secondsLeft(page, key);
  await expect.poll(() => secondsLeft(page, key)).toBeLessThan(before);

  const refused = await server.call('leases/acquire', { lease_key: key, owner: 'worker-2', ttl_ms: 6_000 });
  expect(refused.status).toBe(409);
  await expect(page.locator('.counter', { hasText: 'Collisions prevented' })).toContainText('today, 1 in all');

  const { lease_id } = lease.body;
  const again = await server.call('leases/renew', { lease_key: key, lease_id, ttl_ms: 1_200_000 });
  expect(again.status).toBe(200);
  await expect.poll(() => secondsLeft(page, key)).toBeGreaterThan(600);

  const shortened = await server.call('leases/renew', { lease_key: key, lease_id, ttl_ms: 1_000, shorten: true });
  expect(shortened.status).toBe(200);
  await expect(row).toContainText('expired');
  await expect(row).toContainText('ago');

  // One of each, for the eye and for the reader.
  const others = ['held', 'breaking', 'released', 'broken'];
  const leases = others.map((lease_key) => ({ lease_key, job_key: `for ${lease_key}` }));
  const many = await server.call('leases/acquire-many', { owner: 'worker-3', ttl_ms: 600_000, leases });
  expect(many.status).toBe(200);
  await server.call('leases/break', { lease_key: 'breaking', reason: 'stuck', grace_ms: 300_000 });
  await server.call('leases/release', { lease_key: 'released', lease_id: many.body.leases[2].lease_id });
  await server.call('leases/break', { lease_key: 'broken', reason: 'stuck', grace_ms: 0 });
  for (const status of others) {
    await expect(page.getByRole('row', { name: `for ${status}` }).locator('.status')).toHaveText(status);
  }
  await expectAccessible(page);

  expect(complaints).toEqual([]);
});

test('the page can be read without scripts', async ({ browser, server }) => {
  await server.call('leases/acquire', { lease_key: 'nightly/report', owner: 'worker-1', ttl_ms: 60_000 });
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.goto(server.url);
  await page.getByLabel('API token').fill(server.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('row', { name: 'nightly/report' })).toContainText('held');
  await expect(page.getByRole('status')).toHaveText('As of');
  await page.close();
});

test('the keyboard alone is enough, and signing out ends the session', async ({ page, server, complaints }) => {
  await page.goto(server.url);
  await expect(page.getByLabel('API token')).toBeFocused();
  await page.keyboard.type(server.token);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('status')).toHaveText('Live');

  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to content' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('main')).toBeFocused();

  const account = page.getByRole('button', { name: 'Account and appearance' });
  await account.focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('combobox', { name: 'Appearance' })).toBeVisible();
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await expect(account).toBeFocused();

  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await expect(page.getByRole('combobox', { name: 'Appearance' })).toBeFocused();
  await page.keyboard.press('d');
  await expect(page.locator('html')).toHaveAttribute('data-appearance', 'dark');
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('data-appearance', 'dark');
  expect(complaints).toEqual([]);

  await account.click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page).toHaveURL(/\/sign-in/);
  await page.goto(server.url);
  await expect(page).toHaveURL(/\/sign-in/);
});
