//! Which clients an HTTP port lets in beyond loopback: those with a certificate of a trusted authority, or with the name and password of a
//! role (HTTP Basic, RFC 7617).

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use rt::LocalBoxFuture;

use crate::Answer;

/// Checks names and passwords.
pub trait Login {
    /// The role that a client at this address is, by name and password. The error is for the client.
    fn log_in(
        &self,
        address: SocketAddr,
        user: String,
        password: String,
    ) -> LocalBoxFuture<Result<LoggedIn, String>>;
}

/// A client that has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// Its role.
    pub role: String,
    /// Whether the role may change the node's state.
    pub is_superuser: bool,
}

/// The proofs of identity that an HTTP port takes of its clients.
#[derive(Clone, Default)]
pub struct Entrance {
    /// The port's certificate and trusted authorities. Clients on loopback need no TLS, all others do.
    pub tls: Option<Arc<tls::Credentials>>,
    /// Checks passwords; without it no client has to log in.
    pub login: Option<Rc<dyn Login>>,
    /// Clients on loopback have to log in, too.
    pub local_login: bool,
}

/// A connection's other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// It uses TLS.
    pub(crate) is_encrypted: bool,
    /// It has shown a certificate of a trusted authority.
    pub(crate) is_certified: bool,
}

impl Peer {
    pub(crate) fn is_local(&self) -> bool {
        is_local(self.address)
    }
}

/// Whether an address is this machine's own, behind which are its users only.
pub(crate) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Entrance {
    /// Refuses a client without a proof of its identity, or one whose role may not change anything where the request does.
    ///
    /// # Errors
    /// The answer: 401 without credentials or with wrong ones, 403 for a role that is no superuser.
    pub(crate) async fn admit(&self, peer: &Peer, changes: bool, headers: &HeaderMap) -> Result<(), Answer> {
        let Some(login) = &self.login else { return Ok(()) };
        if peer.is_certified || (peer.is_local() && !self.local_login) {
            return Ok(());
        }
        let (user, password) = credentials(headers)?;
        let logged_in = login.log_in(peer.address, user, password).await;
        let LoggedIn { role, is_superuser } = logged_in.map_err(|why| Answer::error(401, why))?;
        match changes && !is_superuser {
            true => Err(Answer::error(
                403,
                format!("role {role} is no superuser: it may ask, and change nothing"),
            )),
            false => Ok(()),
        }
    }
}

/// Name and password of a request.
fn credentials(headers: &HeaderMap) -> Result<(String, String), Answer> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value,
        (None, _) => {
            return Err(Answer::error(
                401,
                "this port wants name and password of a role (HTTP Basic; torc nodetool -u NAME -pw PASSWORD)",
            ));
        }
        _ => return Err(Answer::error(400, "a request has one Authorization")),
    };
    parse(value.as_bytes())
        .ok_or_else(|| Answer::error(400, "Authorization is not 'Basic' with the base64 of name:password"))
}

fn parse(value: &[u8]) -> Option<(String, String)> {
    let (scheme, code) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let bytes = stdx::base64::decode(code.trim()).filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    // A zero byte would separate the two elsewhere.
    let is_text = !text.contains('\0');
    is_text.then(|| (user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn name_and_password_of_a_header() {
        let read = |value: &str| parse(value.as_bytes()).map(|(user, password)| format!("{user}/{password}"));
        assert_eq!(read("Basic YTpiOmM="), Some("a/b:c".to_owned()));
        assert_eq!(read("basic  Og=="), Some("/".to_owned()));
        for bad in [
            "",
            "Basic",
            "Basic ",
            "Bearer YTpiOmM=",
            "Basic YTpiOmM",
            "Basic YWI=",
            "Basic ADphAA==",
            "Basic /w==",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    struct Nobody;

    impl Login for Nobody {
        fn log_in(&self, _: SocketAddr, _: String, _: String) -> LocalBoxFuture<Result<LoggedIn, String>> {
            Box::pin(std::future::ready(Err("nobody logs in".to_owned())))
        }
    }

    #[test]
    fn clients_of_the_machine_are_trusted_unless_they_log_in_too() {
        let admitted = |entrance: &Entrance, ip: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), 1);
            let peer = Peer { address, is_encrypted: false, is_certified: false };
            let admitted =
                entrance.admit(&peer, true, &HeaderMap::new()).now_or_never().expect("it is ready");
            admitted.map_err(|answer| answer.status)
        };
        let open = Entrance::default();
        assert_eq!([admitted(&open, "127.0.0.1"), admitted(&open, "10.0.0.1")], [Ok(()), Ok(())]);
        let far = Entrance { login: Some(Rc::new(Nobody)), ..Entrance::default() };
        assert_eq!([admitted(&far, "::1"), admitted(&far, "10.0.0.1")], [Ok(()), Err(401)]);
        let all = Entrance { local_login: true, ..far };
        assert_eq!([admitted(&all, "127.0.0.1"), admitted(&all, "10.0.0.1")], [Err(401), Err(401)]);
    }

    #[test]
    fn loopback_is_of_both_families() {
        let local = |text: &str| is_local(SocketAddr::new(text.parse().unwrap(), 1));
        assert!(local("127.0.0.9") && local("::1") && local("::ffff:127.0.0.1"));
        assert!(!local("10.0.0.1") && !local("::ffff:10.0.0.1") && !local("0.0.0.0"));
    }
}
