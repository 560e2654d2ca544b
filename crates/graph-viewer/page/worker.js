// Reads and verifies a journal beside the page, which stays usable meanwhile.

import { Refusal, read, verify } from "./verify.js";

addEventListener("message", async ({ data: { address, options } }) => {
  const said = (message) => postMessage(message);
  try {
    said({ stage: "reading" });
    const response = await fetch(address, { cache: "no-store", credentials: "omit", redirect: "error" });
    if (!response.ok) {
      const { problem } = await response.json();
      said({ stage: "refused", kind: "unreadable", message: problem });
      return;
    }
    const bytes = new Uint8Array(await response.arrayBuffer());
    const began = performance.now();
    const progress = (done, all) => said({ stage: "verifying", done, all });
    const proven = await verify(read(bytes, options), { ...options, progress });
    said({ stage: "proven", ...proven, bytes: bytes.length, ms: Math.round(performance.now() - began) });
  } catch (error) {
    const { kind = "failed", record, line } = error instanceof Refusal ? error : {};
    said({ stage: "refused", kind, record, line, message: error.message });
  }
});
