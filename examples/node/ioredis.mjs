// Connects rwlock.mjs with ioredis: `new Locks(ioredis(client))`. The client is a Redis or
// a Cluster.

export function ioredis(client) {
  return {
    isCluster: Boolean(client.isCluster),

    command: (lock, [command, ...words]) => client.call(command, ...words),

    /** The server that has the lock. */
    async node(lock) {
      const near = client.isCluster ? await nodeOf(client, lock) : client
      return {
        address: addressOf(near),
        connect: (name, onclose) => connect(near, name, onclose),
      }
    },
  }
}

const addressOf = ({ options: { host, port, path } }) => path ?? `${host}:${port}`

async function nodeOf(cluster, lock) {
  const slot = await cluster.call('CLUSTER', 'KEYSLOT', lock)
  const [address] = cluster.slots[slot] ?? []
  const node = cluster.nodes('master').find((node) => addressOf(node) === address)
  if (!node) throw new Error(`the client knows no node for slot ${slot}`)
  return node
}

async function connect(near, name, onclose) {
  const own = near.duplicate({
    connectionName: name,
    // A wait may take any time, and a session never moves to a second connection.
    commandTimeout: undefined,
    blockingTimeout: undefined,
    socketTimeout: undefined,
    keepAlive: 15_000,
    retryStrategy: () => null,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: true,
    enableReadyCheck: false,
    maxRetriesPerRequest: null,
    lazyConnect: true,
  })
  let refused
  own.on('error', (error) => (refused = error)).on('end', onclose)
  try {
    await own.connect()
  } catch (error) {
    throw refused ?? error // ioredis itself says only "Connection is closed."
  }
  return {
    send: ([command, ...words]) => own.call(command, ...words),
    isOpen: () => own.status === 'ready',
    close: () => own.disconnect(),
  }
}
