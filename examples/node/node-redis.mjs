// Connects rwlock.mjs with node-redis: `new Locks(nodeRedis(client))`. The client comes
// from createClient or createCluster.

export function nodeRedis(client) {
  const isCluster = typeof client.getNodeClientForKey === 'function'
  return {
    isCluster,

    command: (lock, words) =>
      isCluster ? client.sendCommand(lock, false, words) : client.sendCommand(words),

    /** The server that has the lock. */
    async node(lock) {
      const near = isCluster ? await client.getNodeClientForKey(lock, false) : client
      const { host = '', port = '', path = '' } = near.options?.socket ?? {}
      return {
        address: `${host}:${port}${path}`,
        connect: (name, onclose) => connect(near, name, onclose),
      }
    },
  }
}

async function connect(near, name, onclose) {
  const own = near.duplicate({
    name,
    // A wait may take any time, and a session never moves to a second connection.
    socket: {
      ...near.options?.socket,
      socketTimeout: 0,
      keepAlive: true,
      keepAliveInitialDelay: 15_000,
      reconnectStrategy: false,
    },
    commandOptions: { ...near.options?.commandOptions, timeout: undefined },
    pingInterval: undefined,
  })
  own.on('error', onclose).on('end', onclose)
  await own.connect()
  return {
    send: (words) => own.sendCommand(words),
    isOpen: () => own.isReady,
    close: () => own.isOpen && own.destroy(),
  }
}
