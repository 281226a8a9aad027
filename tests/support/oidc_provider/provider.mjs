// An OpenID Connect issuer for tests: npm's certified oidc-provider with its own pages for sign-in.
// Usage: node provider.mjs '{"redirects": [...], "people": {"ada": {"groups": [...]}}, ...}'
// Prints its address. POST /test/rotate changes the signing key, /test/people replaces the accounts.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, settings] = [process.argv[2], JSON.parse(process.argv[3])];
const found = createRequire(pathToFileURL(`${folder}/`)).resolve('oidc-provider');
const { default: Provider } = await import(pathToFileURL(found));
let people = settings.people;
let callback;

function signingKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: randomUUID() };
}

function makeProvider(issuer) {
  const made = new Provider(issuer, {
    clients: [
      {
        client_id: 'compatgate',
        client_secret: settings.secret,
        redirect_uris: settings.redirects,
        post_logout_redirect_uris: settings.afterSignOut,
      },
      {
        client_id: 'compatgate-cli',
        application_type: 'native',
        token_endpoint_auth_method: 'none',
        grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
        redirect_uris: [],
        response_types: [],
      },
    ],
    jwks: { keys: [signingKey()] },
    cookies: { keys: ['for tests'] },
    claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email'], groups: ['groups'] },
    conformIdTokenClaims: settings.groupsOnlyInUserinfo ?? false,
    features: {
      deviceFlow: { enabled: true },
      devInteractions: { enabled: true },
      rpInitiatedLogout: { enabled: true },
    },
    pkce: { required: () => true },
    ttl: { IdToken: 600, DeviceCode: 60, Interaction: 600, Session: 600, Grant: 600, AccessToken: 600 },
    findAccount: (_, id) =>
      people[id] && { accountId: id, claims: () => ({ sub: id, preferred_username: id, ...people[id] }) },
  });
  made.on('server_error', (_, error) => console.error(error));
  return made.callback();
}

const server = createServer(async (request, response) => {
  if (!request.url.startsWith('/test/')) return callback(request, response);
  const parts = [];
  for await (const part of request) parts.push(part);
  if (request.url === '/test/rotate') callback = makeProvider(issuer);
  if (request.url === '/test/people') people = JSON.parse(Buffer.concat(parts));
  return response.writeHead(204).end();
});
let issuer;
server.listen(settings.port ?? 0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  callback = makeProvider(issuer);
  console.log(issuer);
});
