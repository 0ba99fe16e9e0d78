//! The role of a client by the certificate that it has shown.

use auth::RoleQueries;
use schema::Schema;
use tls::PeerCertificate;

use crate::Config;
use crate::config::CertificateNaming;

/// The beginning of an identity, as `SpiffeCertificateValidator` finds it among a certificate's URIs.
const SPIFFE: &str = "spiffe://";

/// How certificates give roles.
pub(crate) enum CertificateNames {
    Identity,
    Queries(RoleQueries),
}

/// The name in a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Certified {
    /// That of an identity, whose role the schema knows.
    Identity(String),
    /// That of a role.
    Role(String),
}

impl CertificateNames {
    pub(crate) fn new(naming: CertificateNaming, config: &Config) -> Self {
        match naming {
            CertificateNaming::Identity => Self::Identity,
            CertificateNaming::Queries => {
                let queries = RoleQueries::parse(&config.auth_certificate_role_queries);
                Self::Queries(queries.expect("the configuration was checked"))
            }
        }
    }

    /// The name in a certificate, or the reason why there is none: Cassandra's, where it is Cassandra's validator.
    pub(crate) fn of(&self, certificate: &PeerCertificate) -> Result<Certified, String> {
        match self {
            Self::Identity => {
                let identity = certificate.uri(SPIFFE).map(|uri| Certified::Identity(uri.to_owned()));
                identity.ok_or_else(|| "Unable to extract Spiffe from the certificate".to_owned())
            }
            Self::Queries(queries) => {
                let role = queries.role(&certificate.subject, &certificate.alternative_names_text());
                let role = role.map(Certified::Role);
                role.ok_or_else(|| {
                    "No query of auth_certificate_role_queries finds a role in the certificate".to_owned()
                })
            }
        }
    }
}

impl Certified {
    /// The role, which need not be there where a query has found it.
    pub(crate) fn role(self, schema: &Schema) -> Result<String, String> {
        match self {
            Self::Role(role) => Ok(role),
            Self::Identity(identity) => match schema.role_of_identity(&identity) {
                Some(role) => Ok(role.name.clone()),
                None => Err(format!("Certificate identity '{identity}' not authorized")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use schema::Role;
    use tls::AlternativeName;

    use super::*;

    fn certificate() -> PeerCertificate {
        let uri = |text: &str| AlternativeName::Uri(text.to_owned());
        PeerCertificate {
            subject: "CN=bob,O=Torc".to_owned(),
            alternative_names: vec![uri("https://x"), uri("spiffe://torc/ann"), uri("spiffe://torc/bob")],
        }
    }

    #[test]
    fn the_first_spiffe_id_is_the_identity() {
        let names = CertificateNames::Identity;
        let found = names.of(&certificate()).expect("an identity");
        assert_eq!(found, Certified::Identity("spiffe://torc/ann".to_owned()));
        let without = PeerCertificate { alternative_names: Vec::new(), ..certificate() };
        assert_eq!(names.of(&without), Err("Unable to extract Spiffe from the certificate".to_owned()));
        let schema = Schema::default().with_role(Role::new("ann"));
        let error = names.of(&certificate()).and_then(|found| found.role(&schema));
        assert_eq!(error, Err("Certificate identity 'spiffe://torc/ann' not authorized".to_owned()));
        let identities = ["spiffe://torc/ann".to_owned()].into();
        let schema = schema.with_role(Role { identities, ..Role::new("anne") });
        assert_eq!(found.role(&schema), Ok("anne".to_owned()));
    }

    #[test]
    fn queries_find_the_role_itself() {
        let names = CertificateNames::new(CertificateNaming::Queries, &Config::default());
        let found = names.of(&certificate()).and_then(|found| found.role(&Schema::default()));
        assert_eq!(found, Ok("bob".to_owned()));
        assert!(names.of(&PeerCertificate::default()).unwrap_err().contains("finds a role"));
    }
}
