// What rwlock.mjs needs of node-redis: `new Locks(nodeRedis(client))`. The client is of
// createClient or createCluster.

export function nodeRedis(client) {
  const isCluster = typeof client.getNodeClientForKey === 'function'
  return {
    command: (key, words) =>
      isCluster ? client.sendCommand(key, false, words) : client.sendCommand(words),

    async node(key) {
      const near = isCluster ? await client.getNodeClientForKey(key, false) : client
      const { host = '', port = '', path = '' } = near.options?.socket ?? {}
      return { name: `${host}:${port}${path}`, connect: (onclose) => connect(near, onclose) }
    },
  }
}

async function connect(near, onclose) {
  const own = near.duplicate({
    // It waits as long as it is told to, and does not come back as another session.
    socket: { ...near.options?.socket, socketTimeout: 0, keepAlive: true, reconnectStrategy: false },
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
