//! The addresses of names: a thread for each name looks them up again and again, so that no shard waits for a name server.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rt::Replaceable;
use server::{Addresses, ResolveHook};

/// Between two looks at a name, and between two that found nothing.
const PAUSE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(5);

/// The way to name servers for the node of this process.
pub fn hook() -> ResolveHook {
    Arc::new(|host, port| follow(host, port, PAUSE, RETRY))
}

/// The addresses of a name, none where it is not known yet. The thread behind them ends soon after the last holder has.
fn follow(host: &str, port: u16, pause: Duration, retry: Duration) -> Result<Addresses, String> {
    let found = look_up(host, port).unwrap_or_else(|error| {
        tracing::warn!("the name {host} has no address: {error}");
        Vec::new()
    });
    let addresses: Addresses = Arc::new(Replaceable::new(found));
    let (held, host) = (Arc::downgrade(&addresses), host.to_owned());
    let work = move || {
        let mut is_known = held.upgrade().is_some_and(|addresses| !addresses.get().is_empty());
        loop {
            std::thread::sleep(if is_known { pause } else { retry });
            let Some(addresses) = held.upgrade() else { return };
            // A name server that is down takes no address away.
            if let Ok(found) = look_up(&host, port) {
                is_known = true;
                if *addresses.get() != found {
                    addresses.replace(found);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("resolver".to_owned()).spawn(work);
    thread.map_err(|error| format!("no thread to look {addresses:?} up: {error}"))?;
    Ok(addresses)
}

fn look_up(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let mut found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    found.sort();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_followed() {
        let millis = Duration::from_millis(5);
        let addresses = follow("localhost", 389, millis, millis).expect("a thread");
        let known = addresses.get();
        assert!(
            !known.is_empty()
                && known.iter().all(|address| address.ip().is_loopback() && address.port() == 389)
        );
        addresses.replace(Vec::new());
        let begun = std::time::Instant::now();
        while addresses.get().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it was not looked up again");
            std::thread::sleep(millis);
        }
        assert_eq!(addresses.get(), known);
        assert!(follow("no-such-host.invalid", 389, millis, millis).expect("a thread").get().is_empty());
    }
}
