//! Messages to a server of syslog, over UDP or a socket of this machine: one thread sends them, so that no shard waits for it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc::{TrySendError, sync_channel};

use server::{SyslogHook, SyslogSender, SyslogTarget};

/// The way to syslog for the node of this process.
pub fn hook() -> SyslogHook {
    Arc::new(open)
}

enum Socket {
    Local(UnixDatagram),
    Udp(UdpSocket),
}

/// Opens the socket and the thread behind it, which ends with the last sender.
///
/// # Errors
/// The operator's sentence when there is no socket to send from, or the path cannot be connected to.
fn open(target: &SyslogTarget, messages_max: usize) -> Result<SyslogSender, String> {
    let failed = |error: std::io::Error| format!("syslog cannot be reached at {target:?}: {error}");
    let socket = match target {
        SyslogTarget::Socket(path) => {
            let socket = UnixDatagram::unbound().map_err(failed)?;
            socket.connect(path).map_err(failed)?;
            Socket::Local(socket)
        }
        SyslogTarget::Udp(address) => {
            let any: SocketAddr = match address.is_ipv4() {
                true => (Ipv4Addr::UNSPECIFIED, 0).into(),
                false => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).map_err(failed)?;
            socket.connect(address).map_err(failed)?;
            Socket::Udp(socket)
        }
    };
    let (sender, receiver) = sync_channel::<String>(messages_max);
    let target = target.clone();
    let send = move || {
        let mut is_failing = false;
        for message in receiver {
            let mut sent = socket.send(message.as_bytes());
            if let (Err(_), SyslogTarget::Socket(path), Socket::Local(local)) = (&sent, &target, &socket) {
                // A server that was restarted has a new socket under the same path.
                sent = local.connect(path).and_then(|()| local.send(message.as_bytes()));
            }
            match sent {
                Ok(_) => is_failing = false,
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::error!(
                        "an entry of the audit log was not accepted by syslog, and is lost: {error}"
                    );
                }
                Err(_) => {}
            }
        }
    };
    std::thread::Builder::new().name("syslog".to_owned()).spawn(send).map_err(failed)?;
    Ok(Arc::new(move |message| match sender.try_send(message) {
        Ok(()) => true,
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
    }))
}

impl Socket {
    fn send(&self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Local(socket) => socket.send(bytes),
            Self::Udp(socket) => socket.send(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_go_to_a_socket_and_over_udp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let missing = open(&SyslogTarget::Socket(path.clone()), 4).err().unwrap();
        assert!(missing.contains("cannot be reached"), "{missing}");
        let patience = Some(Duration::from_secs(20));
        let mut bytes = [0; 100];

        let local = UnixDatagram::bind(&path).unwrap();
        local.set_read_timeout(patience).unwrap();
        let send = open(&SyslogTarget::Socket(path.clone()), 4).unwrap();
        assert!(send("<109>1 one".to_owned()));
        let len = local.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"<109>1 one");
        // The server comes again under the same path.
        drop(local);
        std::fs::remove_file(&path).unwrap();
        let local = UnixDatagram::bind(&path).unwrap();
        local.set_read_timeout(patience).unwrap();
        assert!(send("<109>1 two".to_owned()));
        let len = local.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"<109>1 two");

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_read_timeout(patience).unwrap();
        let send = open(&SyslogTarget::Udp(udp.local_addr().unwrap()), 4).unwrap();
        assert!(send("<109>1 three".to_owned()));
        let len = udp.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"<109>1 three");
    }
}
