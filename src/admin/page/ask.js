// Questions to the server this page came from.

const PATIENCE_MS = 15_000;

/** The path is not there: a sizegate without that part. */
export class Missing extends Error {}

async function json(path, options) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store", ...options });
  if (answer.status === 404) throw new Missing(path);
  const text = await answer.text();
  if (!answer.ok) throw new Error(sentence(text) ?? `${path} answered ${answer.status}`);
  return JSON.parse(text);
}

function sentence(text) {
  try {
    return JSON.parse(text).error ?? null;
  } catch {
    return text.trim() || null;
  }
}

/** Of all replicas together, where there are any (`admin.peers`): the server asks them. */
const ofAll = (path) => `${path}${path.includes("?") ? "&" : "?"}peers=1`;

/** The answer, or the error: a view decides what it can show without. */
const attempt = (path) => json(ofAll(path)).catch((error) => error);

const usable = (answer) => (answer instanceof Error ? null : answer);

export const ask = {
  path: attempt,

  post: (path, body) => json(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  }),

  /** What stands above every view. */
  async state() {
    const [status, families, lingering, fetched, recent, claims] = await Promise.all(
      ["status", "families", "lingering", "fetch", "refusals/recent", "claims"].map((path) => attempt(`/api/v1/${path}`)),
    );
    return {
      status: usable(status),
      families: usable(families),
      lingering: { ...usable(lingering), ...usable(fetched) },
      recent: usable(recent)?.groups ?? [],
      claims: usable(claims),
      failed: status instanceof Error ? status : null,
      badges: {},
    };
  },
};
