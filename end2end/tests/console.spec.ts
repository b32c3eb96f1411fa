// The console around the leases: finding, one key's page, what operators do there, the timeline; and how it fares when the server
// goes away.

import { readFile } from 'node:fs/promises';

import { expect, test } from './server';
import { expectAccessible, signIn } from './steps';

test.slow();

test('leases are found by qualifiers, chips and order, all of it in the address', async ({ page, server, complaints }) => {
  for (const [lease_key, owner] of [['nightly/report', 'worker-1'], ['nightly/vacuum', 'worker-2'], ['mail/digest', 'worker-1']]) {
    await server.call('leases/acquire', { lease_key, owner, ttl_ms: 600_000 });
  }
  await server.call('leases/break', { lease_key: 'mail/digest', reason: 'stuck', grace_ms: 0 });
  await signIn(page, server);
  const keys = page.locator('.records tbody th');
  await expect(keys).toHaveText(['mail/digest', 'nightly/vacuum', 'nightly/report']);

  await page.keyboard.press('/');
  await page.keyboard.type('owner:worker-1 key:nightly/*');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\?q=owner/);
  await expect(keys).toHaveText(['nightly/report']);
  await page.getByRole('link', { name: 'Remove owner:worker-1' }).click();
  await expect(keys).toHaveText(['nightly/vacuum', 'nightly/report']);
  await page.getByRole('link', { name: 'lease_key' }).click();
  await expect(keys).toHaveText(['nightly/report', 'nightly/vacuum']);
  await expect(page.getByRole('columnheader', { name: 'lease_key' })).toHaveAttribute('aria-sort', 'ascending');
  await page.goBack();
  await expect(keys).toHaveText(['nightly/vacuum', 'nightly/report']);
  await expectAccessible(page);

  await page.goto(server.url);
  await page.getByRole('link', { name: 'Broken' }).click();
  await expect(keys).toHaveText(['mail/digest']);
  await page.goto(`${server.url}/?q=colour:red`);
  await expect(page.getByRole('alert')).toContainText('There is no qualifier colour');
  await expectAccessible(page);
  expect(complaints).toEqual([]);
});

test('a list in another order says that there are new leases instead of moving', async ({ page, server }) => {
  await server.call('leases/acquire', { lease_key: 'b', owner: 'w', ttl_ms: 600_000 });
  await signIn(page, server);
  await page.goto(`${server.url}/?sort=lease_key`);
  await expect(page.getByRole('status')).toHaveText('Live');
  await server.call('leases/acquire', { lease_key: 'a', owner: 'w', ttl_ms: 600_000 });
  await expect(page.getByRole('link', { name: '1 new lease: show' })).toBeVisible();
  await expect(page.locator('.records tbody th')).toHaveText(['b']);
  await page.getByRole('link', { name: '1 new lease: show' }).click();
  await expect(page.locator('.records tbody th')).toHaveText(['a', 'b']);
});

test('one key by keyboard alone: why it cannot be had, who waits, and a force-release', async ({ page, server, complaints }) => {
  const lease_key = 'nightly/report (eu)';
  const { body } = await server.call('leases/acquire', { lease_key, owner: 'worker-1', ttl_ms: 600_000 });
  await server.call('leases/renew', { lease_key, lease_id: body.lease_id });
  await signIn(page, server);
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(lease_key);
  await expect(page.getByText('It cannot be acquired now: worker-1 holds it')).toBeVisible();
  await expect(page.getByRole('img', { name: 'The latest renewal' })).toBeVisible();
  await expect(page.getByRole('status')).toHaveText('Live');

  const waiting = server.call('leases/acquire', { lease_key, owner: 'worker-2', wait_ms: 60_000, ttl_ms: 600_000 });
  await expect.poll(async () => (await server.call('leases/get', { lease_key })).body.queue_length).toBe(1);
  await server.call('leases/renew', { lease_key, lease_id: body.lease_id });
  await expect(page.getByRole('listitem').filter({ hasText: 'worker-2' })).toBeVisible();
  await expectAccessible(page);

  const button = page.getByRole('button', { name: 'Force-release' }).first();
  await button.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Force-release' });
  await expect(dialog).toBeVisible();
  await expect(dialog).toContainText('cannot be undone');
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await expect(dialog).toBeHidden();
  await expect(button).toBeFocused();

  await page.keyboard.press('Enter');
  await page.keyboard.type('stuck on a dead disk');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Home');
  await page.keyboard.press('Tab');
  await page.keyboard.type('another key');
  await page.keyboard.press('Enter');
  await expect(dialog, 'the browser holds the form back').toBeVisible();
  await page.keyboard.press('Control+a');
  await page.keyboard.type(lease_key);
  await page.keyboard.press('Enter');
  await expect(page.getByText('The break is on its way')).toBeVisible();
  expect((await waiting).body.owner).toBe('worker-2');
  await expect(page.getByText('worker-2 holds it')).toBeVisible();
  await expect(page.getByRole('listitem').filter({ hasText: 'stuck on a dead disk' }).first()).toContainText('bootstrap');

  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Operations timeline');
  await expect(page.getByRole('row', { name: 'lease.broken' })).toContainText('stuck on a dead disk');
  await expectAccessible(page);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keys' })).toBeVisible();
  await expectAccessible(page);
  expect(complaints).toEqual([]);
});

test('rows keep still under a hand, and what came meanwhile comes when it lets go', async ({ page, server }) => {
  await server.call('leases/acquire', { lease_key: 'first', owner: 'w', ttl_ms: 600_000 });
  await signIn(page, server);
  const keys = page.locator('.records tbody th');
  await page.keyboard.press('j');
  await expect(page.getByRole('link', { name: 'first' })).toBeFocused();
  await server.call('leases/acquire', { lease_key: 'second', owner: 'w', ttl_ms: 600_000 });
  await expect(page.getByRole('link', { name: '1 new lease: show' })).toBeVisible();
  await expect(keys).toHaveText(['first']);
  await page.getByRole('link', { name: 'first' }).blur();
  await expect(keys).toHaveText(['second', 'first']);
});

test('a long list tells how long it is, and leads on', async ({ page, server }) => {
  for (let from = 0; from < 1_100; from += 100) {
    const operations = [...Array(100).keys()].map((n) => ({
      acquire: { lease_key: `many/${String(from + n).padStart(4, '0')}`, owner: 'w', ttl_ms: 600_000 },
    }));
    await server.call('leases/batch', { operations });
  }
  await signIn(page, server);
  await expect(page.getByText('The first 100 of more than 1,000')).toBeVisible();
  await page.goto(`${server.url}/?q=key%3Amany%2F00*&sort=lease_key`);
  await expect(page.getByText('100 found')).toBeVisible();
  await page.goto(`${server.url}/?q=key%3Amany%2F0*&sort=lease_key`);
  await expect(page.getByText('The first 100 of 1,000')).toBeVisible();
  await page.getByRole('link', { name: 'Next page' }).click();
  await expect(page.locator('.records tbody th').first()).toHaveText('many/0100');
  await expect(page.getByText('100 more of 1,000')).toBeVisible();
});

test('all that a filter finds is to be had as a file', async ({ page, server, complaints }) => {
  for (const lease_key of ['nightly/a', 'nightly/b', 'mail/c']) {
    await server.call('leases/acquire', { lease_key, owner: '=cmd', ttl_ms: 600_000 });
  }
  await signIn(page, server);
  await page.goto(`${server.url}/?q=key%3Anightly%2F*&sort=-updated_at`);
  for (const [format, begin] of [['CSV', "lease_key,job_key,owner"], ['JSON', '[\n{"lease_id"']] as const) {
    const download = page.waitForEvent('download');
    await page.getByRole('link', { name: format }).click();
    const text = await readFile(await (await download).path(), 'utf8');
    expect(text.startsWith(begin), text).toBe(true);
    expect(text.match(/nightly\/./g)).toEqual(['nightly/a', 'nightly/b']);
    expect(text.includes("'=cmd")).toBe(format === 'CSV');
  }
  expect(complaints).toEqual([]);
});

test('on a small screen everything is within reach', async ({ page, server, complaints }) => {
  const lease_key = 'nightly/a-report-with-a-name-that-is-longer-than-a-small-screen-is-wide';
  await server.call('leases/acquire', { lease_key, owner: 'worker-1.eu-central', job_key: 'report', ttl_ms: 600_000 });
  await page.setViewportSize({ width: 390, height: 844 });
  await signIn(page, server);
  for (const width of [390, 320]) {
    await page.setViewportSize({ width, height: 700 });
    for (const path of ['/', '/?q=status%3Aheld', `/core/leases/${lease_key}`, '/core/audit']) {
      await page.goto(server.url + path);
      await expect(page.getByRole('status')).toHaveText('Live');
      const over = await page.evaluate(() => {
        const room = document.documentElement.clientWidth;
        // What scrolls by itself may be wider than the screen.
        const own = [...document.querySelectorAll('main *')].filter((element) => !element.closest('.scroll, pre'));
        return own.filter((element) => element.getBoundingClientRect().right > room + 0.5).map((element) => element.outerHTML);
      });
      expect(over, `${path} at ${width}`).toEqual([]);
    }
  }
  await page.getByRole('button', { name: 'Pages' }).click();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Job Leases' }).click();
  await page.getByRole('link', { name: lease_key }).click();
  await page.getByRole('button', { name: 'Quarantine' }).click();
  await page.getByRole('dialog').getByLabel('Reason').fill('bad data');
  await expectAccessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Quarantine' }).click();
  await expect(page.getByText('it is quarantined since')).toBeVisible();
  expect(complaints).toEqual([]);
});

test('two browsers see each other’s change', async ({ browser, server }) => {
  const lease_key = 'shared';
  await server.call('leases/acquire', { lease_key, owner: 'worker-1', ttl_ms: 600_000 });
  const pages = await Promise.all([1, 2].map(async () => (await browser.newContext()).newPage()));
  for (const page of pages) {
    await signIn(page, server);
    await page.goto(`${server.url}/core/leases/${lease_key}`);
    await expect(page.getByRole('status')).toHaveText('Live');
  }
  const [one, other] = pages;
  await one.getByRole('button', { name: 'Quarantine' }).click();
  await one.getByRole('dialog').getByLabel('Reason').fill('bad data');
  await one.getByRole('dialog').getByRole('button', { name: 'Quarantine' }).click();
  await expect(one.getByText('The key is quarantined')).toBeVisible();
  await expect(other.getByText('Nobody can acquire it: it is quarantined')).toBeVisible();
  await other.getByRole('button', { name: 'Lift the quarantine' }).click();
  await other.getByRole('dialog').getByLabel('Reason').fill('mended');
  await other.getByRole('dialog').getByRole('button', { name: 'Lift' }).click();
  await expect(one.getByText('worker-1 holds it')).toBeVisible();

  // How long a change takes from the one to the other's eyes. The best of some: a busy machine is no fault of the console's.
  let quickest = Number.POSITIVE_INFINITY;
  for (const [action, sentence] of [...Array(4)].flatMap(() => [
    ['quarantine', 'Nobody can acquire it: it is quarantined'],
    ['lift', 'It cannot be acquired now: worker-1 holds it'],
  ])) {
    const seen = other.evaluate(
      (sentence) =>
        new Promise<number>((resolve) => {
          const look = () => document.body.innerText.includes(sentence) && resolve(Date.now());
          new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
        }),
      sentence,
    );
    const began = await one.evaluate(
      async ([action, lease_key]) => {
        const began = Date.now();
        const body = new URLSearchParams({ lease_key, reason: 'measured' });
        await fetch(`/core/leases/actions/${action}`, { method: 'POST', body, redirect: 'manual' });
        return began;
      },
      [action, lease_key],
    );
    quickest = Math.min(quickest, (await seen) - began);
  }
  expect(quickest).toBeLessThan(200);
  await Promise.all(pages.map((page) => page.context().close()));
});

test('nothing moves while a page loads, nor while it lives', async ({ page, server, complaints }) => {
  for (let n = 0; n < 30; n += 1) {
    await server.call('leases/acquire', { lease_key: `steady/${n}`, owner: 'worker-1', job_key: 'steady', ttl_ms: 600_000 });
  }
  await signIn(page, server);
  for (const path of ['/', '/?q=status%3Aheld', '/core/leases/steady/7', '/core/audit']) {
    await page.goto(server.url + path);
    await expect(page.getByRole('status')).toHaveText('Live');
    const moved = page.evaluate(
      () =>
        new Promise<number>((resolve) => {
          let sum = 0;
          const observer = new PerformanceObserver((list) => {
            for (const entry of list.getEntries() as unknown as { value: number }[]) sum += entry.value;
          });
          observer.observe({ type: 'layout-shift', buffered: true });
          setTimeout(() => resolve(sum), 1_500);
        }),
    );
    const { body } = await server.call('leases/get', { lease_key: 'steady/7' });
    await server.call('leases/renew', { lease_key: 'steady/7', lease_id: body.lease.lease_id });
    expect(await moved, path).toBeLessThan(0.01);
  }
  expect(complaints).toEqual([]);
});

test('a thousand page loads, twenty at a time, are each complete', async ({ page, server }) => {
  for (let n = 0; n < 20; n += 1) {
    await server.call('leases/acquire', { lease_key: `load/${n}`, owner: 'worker-1', ttl_ms: 600_000 });
  }
  await signIn(page, server);
  const cookie = (await page.context().cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
  const paths = ['/', '/core/leases/load/7', '/core/audit', '/?q=owner%3Aworker-1'];
  let [left, loads] = [1_000, 0];
  await Promise.all(
    [...Array(20)].map(async () => {
      while (left > 0) {
        left -= 1;
        const path = paths[left % paths.length];
        const response = await fetch(server.url + path, { headers: { cookie } });
        const text = await response.text();
        expect(response.status, path).toBe(200);
        // The frame, the list and the end that is written once nothing is missing any more.
        for (const part of ['</html>', path === '/core/audit' ? 'lease.granted' : 'load/7', '__INCOMPLETE_CHUNKS=[];</script>']) {
          expect(text.includes(part), `${path} lacks ${part}`).toBe(true);
        }
        loads += 1;
      }
    }),
  );
  expect(loads).toBe(1_000);
});

test('a viewer is offered nothing, and refused what is asked all the same', async ({ page, server }) => {
  const lease_key = 'guarded';
  const { body } = await server.call('leases/acquire', { lease_key, owner: 'worker-1', ttl_ms: 600_000 });
  const made = await server.call('tokens/create', { name: 'onlooker', role: 'viewer' });
  await signIn(page, server, made.body.token);
  await page.goto(`${server.url}/core/leases/${lease_key}`);
  await expect(page.getByText('worker-1 holds it')).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Actions' })).toHaveCount(0);
  const form = { lease_key, lease_id: body.lease_id, reason: 'no', grace_ms: '0', confirm: lease_key };
  const answer = await page.request.post(`${server.url}/core/leases/actions/break`, {
    form,
    headers: { origin: server.url },
  });
  expect(answer.url()).toContain('refused=forbidden');
  expect(await answer.text()).toContain('this needs the role operator');
  expect((await server.call('leases/get', { lease_key })).body.status).toBe('held');
});

test('a key’s page can be read and acted on without scripts', async ({ browser, server }) => {
  const lease_key = 'plain';
  await server.call('leases/acquire', { lease_key, owner: 'worker-1', ttl_ms: 600_000 });
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.goto(server.url);
  await page.getByLabel('API token').fill(server.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: lease_key }).click();
  await expect(page.getByText('worker-1 holds it')).toBeVisible();
  await page.getByRole('button', { name: 'Quarantine' }).click();
  await page.getByRole('dialog').getByLabel('Reason').fill('bad data');
  await page.getByRole('dialog').getByRole('button', { name: 'Quarantine' }).click();
  await expect(page.getByText('it is quarantined since')).toBeVisible();
  await page.close();
});

test('the page lives on when the server comes back', async ({ page, server }) => {
  const lease_key = 'steady';
  await server.call('leases/acquire', { lease_key, owner: 'worker-1', ttl_ms: 600_000 });
  await signIn(page, server);
  await server.restart();
  await expect(page.getByRole('status')).toHaveText('Live');
  await server.call('leases/acquire', { lease_key: 'after', owner: 'worker-2', ttl_ms: 600_000 });
  await expect(page.getByRole('row', { name: 'after' })).toContainText('held');
});
