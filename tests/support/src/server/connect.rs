//! Connecting to a server, and reading its INFO.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{
    Client, Connection, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisResult,
};

pub(super) fn connect(
    port: u16,
    protocol: ProtocolVersion,
    reply_limit: Duration,
) -> RedisResult<Connection> {
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port)
        .into_connection_info()?
        // Tests of promptness shall not measure Nagle's algorithm.
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(
            RedisConnectionInfo::default()
                .set_protocol(protocol)
                // Servers that do not know it would count an error.
                .set_skip_set_lib_name(),
        );
    let connection = Client::open(address)?.get_connection_with_timeout(reply_limit)?;
    connection.set_read_timeout(Some(reply_limit))?;
    connection.set_write_timeout(Some(reply_limit))?;
    Ok(connection)
}

/// The `name:value` lines of an answer to INFO.
pub(super) fn info_fields(info: &str) -> BTreeMap<String, String> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
