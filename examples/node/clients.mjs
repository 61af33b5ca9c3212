// Clients of both libraries, for the demonstration, the workers and the tests.

import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'

import { ioredis } from './ioredis.mjs'
import { nodeRedis } from './node-redis.mjs'

export async function connect(library, url, isCluster = false) {
  if (library === 'ioredis') {
    const { hostname: host, port } = new URL(url)
    const client = isCluster ? new Cluster([{ host, port: Number(port) }]) : new Redis(url)
    client.on('error', (error) => console.error(error.message))
    return {
      server: ioredis(client),
      client,
      command: (key, ...words) => client.call(...words),
      close: () => client.disconnect(),
    }
  }
  const client = isCluster ? createCluster({ rootNodes: [{ url }] }) : createClient({ url })
  client.on('error', (error) => console.error(error.message))
  await client.connect()
  return {
    server: nodeRedis(client),
    client,
    command: (key, ...words) =>
      isCluster ? client.sendCommand(key, false, words) : client.sendCommand(words),
    close: () => client.destroy(),
  }
}
