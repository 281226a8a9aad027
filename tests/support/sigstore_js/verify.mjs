// Verifies bundles with sigstore-js, a key, and no log: reads cases as JSON, writes their answers.
// As sigstore-js leaves the subject to its caller, the digest is compared here.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(`${process.argv[2]}/`);
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const nothing = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const withoutLog = { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 };

function judge({ bundle, keys, digest }) {
  try {
    const named = Object.entries(keys).map(([hint, der]) => [hint, { rawBytes: Buffer.from(der, "base64") }]);
    const read = bundleFromJSON(bundle);
    const material = toTrustMaterial(nothing, Object.fromEntries(named));
    new Verifier(material, withoutLog).verify(toSignedEntity(read));
    const statement = JSON.parse(read.content.dsseEnvelope.payload.toString("utf8"));
    const about = statement.subject.some((one) => one.digest.sha256 === digest);
    return about ? "accepted" : "SUBJECT_ERROR: it is about another image";
  } catch (error) {
    return `${error.code ?? error.name}: ${error.message}`;
  }
}

const cases = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(cases.map(judge)));
