// What rwlock.mjs needs of ioredis: `new Locks(ioredis(client))`. The client is a Redis or
// a Cluster.

export function ioredis(client) {
  return {
    command: (key, [command, ...words]) => client.call(command, ...words),

    async node(key) {
      const near = client.isCluster ? await nodeOf(client, key) : client
      return { name: nameOf(near), connect: (onclose) => connect(near, onclose) }
    },
  }
}

const nameOf = ({ options: { host, port, path } }) => path ?? `${host}:${port}`

async function nodeOf(cluster, key) {
  const slot = await cluster.call('CLUSTER', 'KEYSLOT', key)
  const [name] = cluster.slots[slot] ?? []
  const node = cluster.nodes('master').find((node) => nameOf(node) === name)
  if (!node) throw new Error(`no node is known for slot ${slot}`)
  return node
}

async function connect(near, onclose) {
  const own = near.duplicate({
    // It waits as long as it is told to, and does not come back as another session.
    commandTimeout: undefined,
    blockingTimeout: undefined,
    socketTimeout: undefined,
    keepAlive: 15_000,
    retryStrategy: () => null,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
    lazyConnect: true,
  })
  own.on('error', () => {}).on('end', onclose)
  await own.connect()
  return {
    send: ([command, ...words]) => own.call(command, ...words),
    isOpen: () => own.status === 'ready',
    close: () => own.disconnect(),
  }
}
