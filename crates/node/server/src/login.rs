//! Authentication of clients against the roles of the schema, by passwords or certificates, and the first superuser.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use auth::password::{COST_MIN, Hash};
use auth::{Lockout, LockoutLimits};
use bytes::Bytes;
use cluster::SchemaEdit;
use coordinator::{Coordinator, SchemaChangeError};
use rt::sync::Semaphore;
use rt::{Group, LocalBoxFuture, Rt};
use schema::Role;
use session::{AllowAll, Authenticator, SaslExchange, SaslStep};
use tls::PeerCertificate;
use wire::{CqlError, ErrorKind};

use crate::Config;
use crate::audit::ShardAudit;
use crate::certificates::{CertificateNames, Certified};
use crate::cheap_hash::cheap_hash;
use crate::config::{Authentication, CertificateNaming};
use crate::directory::ShardDirectory;
use crate::place::PlaceCheck;

/// The password of the first superuser, which counts from loopback addresses only.
const DEFAULT_PASSWORD: &str = "cassandra";
/// Logins of a shard that wait for their password to be hashed; more are refused.
const LOGINS_MAX: usize = 256;
/// Passwords of a shard that are known to be right; more of them are forgotten together.
const VERIFIED_MAX: usize = 1024;
/// Time between two attempts to create the first superuser.
const RETRY: Duration = Duration::from_secs(1);

/// The authenticator of a shard's sessions.
pub(crate) fn authenticator(
    rt: &Rt,
    config: &Config,
    coordinator: &Coordinator,
    audit: &ShardAudit,
    (place, directory): (Rc<PlaceCheck>, Option<Rc<ShardDirectory>>),
) -> Rc<dyn Authenticator> {
    let Some(method) = config.authentication().filter(|_| !config.asks_nobody()) else {
        return Rc::new(AllowAll);
    };
    let limits =
        LockoutLimits { failures_max: config.auth_failed_logins_max, duration: config.auth_lockout_duration };
    let certificates = method.certificates.map(|naming| CertificateNames::new(naming, config));
    let login = Rc::new(Login {
        rt: rt.clone(),
        coordinator: coordinator.clone(),
        audit: audit.clone(),
        superuser: config.auth_superuser_name.clone(),
        place,
        cost: config.auth_bcrypt_gensalt_log2_rounds,
        lockout: Lockout::new(limits),
        verified: RefCell::default(),
        directory,
        hashing: Semaphore::new(1),
        waiting: Cell::new(0),
    });
    Rc::new(Logins { login, method, certificates })
}

/// Administrators log in as clients of CQL do, with the same limits, beside the audit log.
pub(crate) struct AdminLogin {
    /// None where clients of CQL have certificates only.
    authenticator: Option<Rc<dyn Authenticator>>,
    coordinator: Coordinator,
}

impl AdminLogin {
    /// By the authenticator of a shard's sessions.
    pub(crate) fn new(
        config: &Config,
        authenticator: Rc<dyn Authenticator>,
        coordinator: Coordinator,
    ) -> Self {
        Self { authenticator: Some(authenticator).filter(|_| config.has_passwords()), coordinator }
    }
}

impl admin::Login for AdminLogin {
    fn log_in(
        &self,
        address: SocketAddr,
        user: String,
        password: String,
    ) -> LocalBoxFuture<Result<admin::LoggedIn, String>> {
        let exchange = self.authenticator.as_ref().map(|authenticator| authenticator.begin(address));
        let coordinator = self.coordinator.clone();
        Box::pin(async move {
            let Some(mut exchange) = exchange else {
                return Err("roles have no passwords here: show a certificate".to_owned());
            };
            let token = Bytes::from(format!("\0{user}\0{password}"));
            match exchange.step(Some(token)).await {
                Ok(SaslStep::Success { user: role, .. }) => {
                    let is_superuser = auth::roles::is_superuser(&coordinator.schema(), &role);
                    Ok(admin::LoggedIn { role, is_superuser })
                }
                Ok(SaslStep::Challenge(_)) => {
                    Err("the authenticator asks for more than a password".to_owned())
                }
                Err(error) => Err(error.message),
            }
        })
    }
}

/// The authenticator: SASL PLAIN, certificates, or either.
struct Logins {
    login: Rc<Login>,
    method: Authentication,
    certificates: Option<CertificateNames>,
}

impl Authenticator for Logins {
    fn class(&self) -> Option<&str> {
        Some(self.method.announced())
    }

    fn certified(
        &self,
        address: SocketAddr,
        certificate: Option<&PeerCertificate>,
    ) -> Option<LocalBoxFuture<Result<String, CqlError>>> {
        let names = self.certificates.as_ref()?;
        if certificate.is_none() && self.method.passwords {
            return None;
        }
        let named = match certificate {
            Some(certificate) => names.of(certificate).map_err(bad_credentials),
            None => Err(bad_credentials("No certificate present on connection")),
        };
        let login = self.login.clone();
        Some(Box::pin(async move { login.log_in_as(address, named).await }))
    }

    fn begin(&self, address: SocketAddr) -> Box<dyn SaslExchange> {
        Box::new(Exchange { login: self.login.clone(), address })
    }
}

struct Exchange {
    login: Rc<Login>,
    address: SocketAddr,
}

impl SaslExchange for Exchange {
    fn step(&mut self, token: Option<Bytes>) -> LocalBoxFuture<Result<SaslStep, CqlError>> {
        let (login, address) = (self.login.clone(), self.address);
        Box::pin(async move { login.log_in(address, token.unwrap_or_default()).await })
    }
}

/// The state that logins of a shard share.
struct Login {
    rt: Rt,
    coordinator: Coordinator,
    audit: ShardAudit,
    superuser: String,
    place: Rc<PlaceCheck>,
    cost: u32,
    lockout: Lockout,
    /// By the hash of a role's password: a cheap hash of the password that was found right, so that the many connections of a
    /// driver do not cost a whole one each. In memory only, and of no use once the role has another password.
    verified: RefCell<BTreeMap<String, Hash>>,
    /// One password is hashed at a time: more would take as long together, and each longer.
    hashing: Semaphore,
    /// Has the passwords of users, or their groups.
    directory: Option<Rc<ShardDirectory>>,
    waiting: Cell<usize>,
}

fn bad_credentials(text: impl Into<String>) -> CqlError {
    CqlError::new(ErrorKind::AuthenticationFailed, text.into())
}

fn incorrect(user: &str) -> CqlError {
    bad_credentials(format!("Provided username {user} and/or password are incorrect"))
}

/// Name and password of a message of SASL PLAIN (RFC 4616): `[authzid] NUL authcid NUL passwd`.
fn decode(token: &[u8]) -> Result<(String, String), CqlError> {
    let mut parts = token.rsplitn(3, |byte| *byte == 0);
    let password = parts.next().unwrap_or_default();
    let user = parts.next();
    let identity = parts.next();
    if identity.is_some_and(|rest| rest.contains(&0)) {
        return Err(bad_credentials(
            "Credential format error: username or password is empty or contains NUL(\\0) character",
        ));
    }
    if user.is_none() || password.is_empty() {
        return Err(bad_credentials("Password must not be null"));
    }
    // As Cassandra reads it: a name stands between two NULs.
    let user = user.filter(|_| identity.is_some());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
    match (text(user.unwrap_or_default()), text(password)) {
        (Ok(user), _) if user.is_empty() => Err(bad_credentials("Authentication ID must not be null")),
        (Ok(user), Ok(password)) if password.len() <= auth::password::PASSWORD_LEN_MAX => {
            Ok((user, password))
        }
        _ => Err(bad_credentials("Name and password must be UTF-8, and the password not too long")),
    }
}

impl Login {
    async fn log_in(self: Rc<Self>, address: SocketAddr, token: Bytes) -> Result<SaslStep, CqlError> {
        let named = decode(&token);
        let user = named.as_ref().ok().map(|(user, _)| user.clone());
        let result = self.check(address, named).await;
        let failure = result.as_ref().err().map(|error| error.message.as_str());
        self.audit.login(user.as_deref(), address, failure).await;
        result
    }

    /// A client that has shown a certificate.
    async fn log_in_as(
        &self,
        address: SocketAddr,
        named: Result<Certified, CqlError>,
    ) -> Result<String, CqlError> {
        let schema = self.coordinator.schema();
        let result = named.and_then(|certified| certified.role(&schema).map_err(bad_credentials));
        let user = result.as_ref().ok().cloned();
        let result = match result {
            Ok(user) => match self.load_groups(&user).await {
                // The role as it is after that.
                Ok(()) => self
                    .check_place(self.coordinator.schema().role(&user).map(|role| &**role), &user, address)
                    .map(|()| user),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let failure = result.as_ref().err().map(|error| error.message.as_str());
        self.audit.login(user.as_deref(), address, failure).await;
        result
    }

    async fn check(
        self: &Rc<Self>,
        address: SocketAddr,
        named: Result<(String, String), CqlError>,
    ) -> Result<SaslStep, CqlError> {
        self.check_lockout(address)?;
        let (user, password) = named?;
        let role = self.coordinator.schema().role(&user).cloned();
        let hash = role.as_ref().and_then(|role| role.salted_hash.as_deref()).and_then(Hash::parse);
        let known = hash.is_some();
        // As long for a role that is not there, so that the time does not say which are.
        let hash = hash.unwrap_or_else(|| Hash::of_nobody(self.cost));
        let is_default =
            password == DEFAULT_PASSWORD && user == self.superuser && self.password_directory().is_none();
        let right = match self.password_directory() {
            Some(directory) => {
                // Others of this address may have failed meanwhile: guesses that come at once count like guesses in a row.
                let may_guess = || self.check_lockout(address).map_err(|error| error.message);
                directory.verify(&user, &password, may_guess).await.map_err(bad_credentials)?
            }
            None => self.matches(address, hash, password).await? && known,
        };
        if !right {
            if self.lockout.failed(address.ip(), self.rt.now()) {
                tracing::warn!(
                    "{} is locked out: too many failed logins, the last as {user:?}",
                    address.ip()
                );
            }
            return Err(incorrect(&user));
        }
        if is_default && !address.ip().to_canonical().is_loopback() {
            let why = format!(
                "Role {user} still has its default password, which is accepted from a loopback address only; log in \
                 on a node and change it: ALTER ROLE {user} WITH PASSWORD = '...'"
            );
            tracing::warn!("login from {} refused: {why}", address.ip());
            return Err(bad_credentials(why));
        }
        self.load_groups(&user).await?;
        // The role as it is now: it may have changed while the login waited.
        let before = role.and_then(|role| role.salted_hash.clone());
        let schema = self.coordinator.schema();
        let role = schema.role(&user).map(|role| &**role);
        if self.password_directory().is_none() && role.and_then(|role| role.salted_hash.clone()) != before {
            return Err(incorrect(&user));
        }
        self.check_place(role, &user, address)?;
        self.lockout.succeeded(address.ip());
        Ok(SaslStep::Success { user, token: None })
    }

    /// The directory that has the passwords, if one has.
    fn password_directory(&self) -> Option<&ShardDirectory> {
        self.directory.as_deref().filter(|directory| directory.logs_in())
    }

    /// Sees to it that a role that logs in has the roles of its groups.
    async fn load_groups(&self, user: &str) -> Result<(), CqlError> {
        match &self.directory {
            Some(directory) => directory.load_groups(user).await.map_err(bad_credentials),
            None => Ok(()),
        }
    }

    /// Refuses an address that has failed too often.
    fn check_lockout(&self, address: SocketAddr) -> Result<(), CqlError> {
        let Some(remaining) = self.lockout.remaining(address.ip(), self.rt.now()) else { return Ok(()) };
        Err(bad_credentials(format!(
            "Too many failed logins from {}; try again in {} s",
            address.ip(),
            remaining.as_secs() + 1
        )))
    }

    /// Whether a role may log in at all, and here.
    fn check_place(&self, role: Option<&Role>, user: &str, address: SocketAddr) -> Result<(), CqlError> {
        let Some(role) = role.filter(|role| role.can_login) else {
            return Err(bad_credentials(format!("{user} is not permitted to log in")));
        };
        let checked = self.place.check(role, address);
        checked.map_err(|why| CqlError::new(ErrorKind::Unauthorized, why))
    }

    /// Hashes the password in a group of few shares, so that logins do not slow requests down.
    async fn matches(
        self: &Rc<Self>,
        address: SocketAddr,
        hash: Hash,
        password: String,
    ) -> Result<bool, CqlError> {
        if self.waiting.get() >= LOGINS_MAX {
            let text = format!("{LOGINS_MAX} logins are waiting already");
            return Err(CqlError::new(ErrorKind::Overloaded, text));
        }
        let _waiting = Waiting::new(self.clone());
        let login = self.clone();
        let work = async move {
            let _permit = login.hashing.acquire(1).await;
            // Others of this address may have failed meanwhile: guesses that come at once count like guesses in a row.
            login.check_lockout(address)?;
            Ok(login.verify(hash, &password).await)
        };
        // Dropped with the connection, it ends the work.
        self.rt.spawn(Group::Maintenance, work).await
    }
}

impl Login {
    /// Whether a hash is that of a password. The cheap hash is made even where none is known, so that the time does not say whose
    /// password was right before.
    async fn verify(&self, hash: Hash, password: &str) -> bool {
        let stored = hash.to_string();
        let known = self.verified.borrow().get(&stored).cloned();
        if known.unwrap_or_else(|| Hash::of_nobody(COST_MIN)).matches(password).await {
            return true;
        }
        if !hash.matches(password).await {
            return false;
        }
        let cheap = cheap_hash(&self.rt, password).await;
        let mut verified = self.verified.borrow_mut();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(stored, cheap);
        true
    }
}

/// A login that waits for its hash; counted while it lives.
struct Waiting(Rc<Login>);

impl Waiting {
    fn new(login: Rc<Login>) -> Self {
        login.waiting.set(login.waiting.get() + 1);
        Self(login)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Creates the first superuser where there is no role yet; tries until that is decided.
pub(crate) async fn create_superuser(rt: &Rt, config: &Config, coordinator: &Coordinator) {
    let mut role = None;
    loop {
        let schema = coordinator.schema();
        if schema.roles().next().is_some() {
            return;
        }
        let role = match &role {
            Some(role) => Role::clone(role),
            None => role.insert(first_superuser(rt, config).await).clone(),
        };
        let (name, has_default) = (role.name.clone(), config.auth_superuser_salted_password.0.is_empty());
        let has_default = has_default && role.salted_hash.is_some();
        match coordinator.change_schema(schema.version(), vec![SchemaEdit::PutRole(role)]).await {
            Ok(()) | Err(SchemaChangeError::Behind { .. }) => {
                tracing::info!("created the superuser role {name:?}");
                if has_default {
                    tracing::warn!(
                        "role {name:?} has the default password, with which it may log in from loopback addresses only; \
                         change it: ALTER ROLE {name} WITH PASSWORD = '...'"
                    );
                }
                return;
            }
            Err(SchemaChangeError::Moved) => {}
            Err(error) => {
                tracing::warn!("the superuser role is not created yet: {error}");
                rt.sleep(RETRY).await;
            }
        }
    }
}

/// The superuser that is created: with the default password, where none is given and passwords count.
async fn first_superuser(rt: &Rt, config: &Config) -> Role {
    let given = config.auth_superuser_salted_password.0.as_str();
    let passwords = config.authentication().is_some_and(|method| method.passwords);
    let salted_hash = match given {
        "" if !passwords => None,
        "" => {
            let mut salt = [0; 16];
            rt.fill_random(&mut salt);
            let cost = config.auth_bcrypt_gensalt_log2_rounds;
            Some(Hash::new(DEFAULT_PASSWORD, cost, salt).await.to_string())
        }
        given => Some(given.to_owned()),
    };
    let identity = Some(config.auth_superuser_identity.clone()).filter(|identity| !identity.is_empty());
    let by_identity = config.authentication().and_then(|method| method.certificates);
    if identity.is_none() && !passwords && by_identity == Some(CertificateNaming::Identity) {
        tracing::warn!(
            "nobody can log in: no certificate's identity has a role, and there are no passwords; create the cluster with \
             auth_superuser_identity, or begin with MutualTlsWithPasswordFallbackAuthenticator and ADD IDENTITY"
        );
    }
    Role {
        can_login: true,
        is_superuser: true,
        salted_hash,
        identities: identity.into_iter().collect(),
        ..Role::new(&config.auth_superuser_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_sasl_plain() {
        let read = |token: &[u8]| match decode(token) {
            Ok((user, password)) => format!("{user}:{password}"),
            Err(error) => error.message,
        };
        assert_eq!(read(b"\0ann\0secret"), "ann:secret");
        assert_eq!(read(b"zid\0ann\0secret"), "ann:secret");
        assert_eq!(read(b"ann\0secret"), "Authentication ID must not be null");
        for bad in [&b""[..], b"\0ann\0", b"secret", b"\0\0"] {
            assert_eq!(read(bad), "Password must not be null", "{bad:?}");
        }
        assert_eq!(read(b"\0\0secret"), "Authentication ID must not be null");
        assert!(read(b"\0a\0b\0c").starts_with("Credential format error"));
        assert!(read(b"\0a\0\xff").contains("UTF-8"));
        assert!(read(&[&b"\0a\0"[..], &[b'x'; 2000]].concat()).contains("too long"));
    }
}
