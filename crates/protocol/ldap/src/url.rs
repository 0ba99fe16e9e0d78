//! URLs of a directory with a place for a user (RFC 4516): `ldaps://host:636/ou=people,dc=x?attribute?sub?(uid={USER})`.

use crate::escape::{in_filter, in_name};
use crate::{Filter, LdapError, Scope};

/// The place of the user.
const USER: &str = "{USER}";

/// A URL of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Whether the connection begins with TLS.
    pub secure: bool,
    /// The directory's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How far a search goes.
    pub scope: Scope,
    /// The first attribute that is wanted.
    pub attribute: Option<String>,
    base: String,
    filter: Option<String>,
}

impl UrlTemplate {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`LdapError::Url`], or [`LdapError::Filter`] of its filter.
    pub fn parse(url: &str) -> Result<Self, LdapError> {
        let refused = |why| LdapError::Url { url: url.chars().take(200).collect(), why };
        let (scheme, rest) = url.split_once("://").ok_or(refused("it begins with ldap:// or ldaps://"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "ldap" => false,
            "ldaps" => true,
            _ => return Err(refused("it begins with ldap:// or ldaps://")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let default = if secure { 636 } else { 389 };
        let (host, port) =
            host_and_port(authority, default).ok_or(refused("its host or port cannot be read"))?;
        let mut parts = path.split('?');
        let mut part = || decoded(parts.next().unwrap_or_default());
        let not_encoded = refused("a percent sign is followed by two hexadecimal digits");
        let base = part().ok_or(not_encoded.clone())?;
        let attributes = part().ok_or(not_encoded.clone())?;
        let scope = match part().ok_or(not_encoded.clone())?.to_ascii_lowercase().as_str() {
            "" | "base" => Scope::Base,
            "one" => Scope::One,
            "sub" => Scope::Subtree,
            _ => return Err(refused("its scope is base, one or sub")),
        };
        let filter = Some(part().ok_or(not_encoded)?).filter(|filter| !filter.is_empty());
        if parts.next().is_some_and(|extensions| !extensions.is_empty()) {
            return Err(refused("extensions are not supported"));
        }
        if attributes.contains(USER) || host.contains(USER) {
            return Err(refused("{USER} stands in its name or its filter"));
        }
        let attribute = attributes.split(',').next().filter(|name| !name.is_empty()).map(str::to_owned);
        let template = Self { secure, host, port, scope, attribute, base, filter };
        // A filter that is none with a harmless user is none with any.
        template.filter("user")?;
        Ok(template)
    }

    /// Whether the user stands in the filter.
    pub fn has_user_in_filter(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.contains(USER))
    }

    /// Whether the user stands in the name of the entry.
    pub fn has_user_in_name(&self) -> bool {
        self.base.contains(USER)
    }

    /// The name of the entry of this user; the user's name is one value there, with any characters.
    pub fn name(&self, user: &str) -> String {
        self.base.replace(USER, &in_name(user))
    }

    /// The filter of this user; without one that of all entries. Where the user is a part of a name inside the filter
    /// (`member=uid={USER},…`), it is one value there, too.
    ///
    /// # Errors
    /// [`LdapError::Filter`], which a URL that was read does not give.
    pub fn filter(&self, user: &str) -> Result<Filter, LdapError> {
        let Some(text) = &self.filter else { return Ok(Filter::any()) };
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(USER) {
            out.push_str(before);
            match is_in_name(&out) {
                true => out.push_str(&in_filter(&in_name(user))),
                false => out.push_str(&in_filter(user)),
            }
            rest = after;
        }
        out.push_str(rest);
        Filter::parse(&out)
    }
}

/// Whether a user behind this part of a filter is a value of a name: the condition has another `=` before it.
fn is_in_name(before: &str) -> bool {
    let condition = before.rsplit('(').next().unwrap_or_default();
    condition.split_once('=').is_some_and(|(_, value)| value.contains('='))
}

fn host_and_port(authority: &str, default: u16) -> Option<(String, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if port.is_empty() => default,
            None => return None,
        };
        return Some((address.to_owned(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, default),
    };
    let fits = |found: char| found.is_ascii_alphanumeric() || matches!(found, '.' | '-' | '_');
    (!host.is_empty() && port != 0 && host.chars().all(fits)).then(|| (host.to_owned(), port))
}

/// A part without its percent encoding.
fn decoded(part: &str) -> Option<String> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = UrlTemplate::parse(
            "ldap://localhost:123/dc=example,dc=com?cn?sub?(uniqueMember=uid={USER},ou=People,dc=example,dc=com)",
        );
        let url = url.expect("ScyllaDB's example");
        assert_eq!(
            (url.secure, url.host.as_str(), url.port, url.scope),
            (false, "localhost", 123, Scope::Subtree)
        );
        assert_eq!((url.attribute.as_deref(), url.name("x").as_str()), (Some("cn"), "dc=example,dc=com"));
        assert!(url.has_user_in_filter() && !url.has_user_in_name());
        let url = UrlTemplate::parse("ldaps://[::1]/uid={USER},ou=a%20b").expect("a name");
        assert_eq!((url.secure, url.host.as_str(), url.port), (true, "::1", 636));
        assert_eq!(url.name("ann,x"), "uid=ann\\2Cx,ou=a b");
        assert!(url.has_user_in_name() && !url.has_user_in_filter());
        assert_eq!(url.filter("ann"), Ok(Filter::any()));
        assert_eq!(UrlTemplate::parse("ldap://h").expect("a host").port, 389);
    }

    #[test]
    fn a_user_stays_one_value_in_filters() {
        let filter =
            |url: &str, user: &str| UrlTemplate::parse(url).expect("a URL").filter(user).expect("a filter");
        let plain = "ldap://h/dc=x??sub?(&(a=b)(uid={USER}))";
        let same = |text: &str| Filter::parse(text).expect("a filter");
        assert_eq!(filter(plain, "*"), same("(&(a=b)(uid=\\2a))"));
        assert_eq!(filter(plain, "x)(uid=*"), same("(&(a=b)(uid=x\\29\\28uid=\\2a))"));
        assert_eq!(filter(plain, "a,b"), same("(&(a=b)(uid=a,b))"), "no name");
        let member = "ldap://h/dc=x??sub?(member=uid={USER},dc=x)";
        assert_eq!(filter(member, "a,ou=admins"), same("(member=uid=a\\5c2Cou\\5c3Dadmins,dc=x)"));
        assert_eq!(filter(member, "{USER}"), same("(member=uid={USER},dc=x)"), "nothing is put in twice");
    }

    #[test]
    fn what_is_no_url_is_said() {
        for (url, why) in [
            ("", "begins with ldap"),
            ("http://h/", "begins with ldap"),
            ("ldap:///dc=x", "host or port"),
            ("ldap://h:0/", "host or port"),
            ("ldap://h:99999/", "host or port"),
            ("ldap://[::1/", "host or port"),
            ("ldap://a b/", "host or port"),
            ("ldap://{USER}/", "host or port"),
            ("ldap://h/dc=%zz", "percent"),
            ("ldap://h/dc=x??all", "scope"),
            ("ldap://h/dc=x?{USER}", "{USER} stands in"),
            ("ldap://h/dc=x??sub?(uid={USER}", "no filter"),
            ("ldap://h/dc=x??sub?(a=b)?x", "extensions"),
        ] {
            let error = UrlTemplate::parse(url).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
