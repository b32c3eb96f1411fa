// What most tests do.

import AxeBuilder from '@axe-core/playwright';
import type { Page } from '@playwright/test';

import { expect, type Server } from './server';

export async function signIn(page: Page, server: Server, token = server.token): Promise<void> {
  await page.goto(server.url);
  await expect(page).toHaveURL(/\/sign-in/);
  await page.getByLabel('API token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Job Leases' })).toBeVisible();
  await expect(page.getByRole('status')).toHaveText('Live');
}

/** Axe finds nothing, in either theme. */
export async function expectAccessible(page: Page): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`)).toEqual([]);
  }
}
