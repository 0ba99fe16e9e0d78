//! The few elements of S3's answers that are read, and the one document that is sent. Elements that are read have no attributes and no
//! comments inside, as S3 and its like write them.

use crate::signature::unescaped;

/// The content of the first element of this name, as it is written.
fn content<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = document.split_once(&format!("<{name}>"))?;
    behind.split_once(&format!("</{name}>")).map(|(content, _)| content)
}

/// The text of the first element of this name.
pub(super) fn text(document: &str, name: &str) -> Option<String> {
    content(document, name).map(unquoted)
}

/// A text without the references of XML to characters.
fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let reference = behind.split_once(';').and_then(|(name, behind)| {
            let number = |digits: &str, radix| char::from_u32(u32::from_str_radix(digits, radix).ok()?);
            let character = match name {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                _ => match name.strip_prefix('#')? {
                    hex if hex.starts_with('x') => number(hex.get(1..)?, 16),
                    digits => number(digits, 10),
                },
            };
            Some((character?, behind))
        });
        match reference {
            Some((character, behind)) => {
                out.push(character);
                rest = behind;
            }
            None => {
                out.push('&');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The code and the message of an error; none where the document is none of an error.
pub(super) fn error(document: &str) -> Option<(String, String)> {
    let error = content(document, "Error")?;
    Some((text(error, "Code")?, text(error, "Message").unwrap_or_default()))
}

/// The keys and lengths of a list with the encoding `url`.
///
/// # Errors
/// When one has no key or no length.
pub(super) fn objects(document: &str) -> Result<Vec<(String, u64)>, &'static str> {
    if content(document, "ListBucketResult").is_none() && !document.contains("<ListBucketResult") {
        return Err("no list of objects");
    }
    let mut found = Vec::new();
    let mut rest = document;
    while let Some((_, behind)) = rest.split_once("<Contents>") {
        let (object, behind) = behind.split_once("</Contents>").ok_or("a list that is cut short")?;
        let key = text(object, "Key").ok_or("an object has no key")?;
        let len = text(object, "Size").and_then(|size| size.parse().ok()).ok_or("an object has no size")?;
        found.push((unescaped(&key.replace('+', " ")), len));
        rest = behind;
    }
    Ok(found)
}

/// The document that makes an object of its parts.
pub(super) fn completion(tags: &[String]) -> String {
    let parts = tags.iter().enumerate().map(|(at, tag)| {
        format!("<Part><PartNumber>{}</PartNumber><ETag>&quot;{tag}&quot;</ETag></Part>", at + 1)
    });
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_with_their_references() {
        for (written, read) in [
            ("a&amp;b", "a&b"),
            ("&lt;&gt;&quot;&apos;", "<>\"'"),
            ("&#65;&#x42;", "AB"),
            ("&nothing; & &#xD800; &#;", "&nothing; & &#xD800; &#;"),
            ("", ""),
        ] {
            assert_eq!(text(&format!("<x><Key>{written}</Key></x>"), "Key").as_deref(), Some(read));
        }
        assert_eq!(text("<Key>cut", "Key"), None);
    }

    #[test]
    fn a_list_is_no_error() {
        let list = "<ListBucketResult xmlns=\"http://s3\"><Contents><Key>a%2Fb+c</Key><Size>12</Size></Contents>\
                    <Contents><Size>3</Size><Key>d</Key></Contents></ListBucketResult>";
        assert_eq!(objects(list), Ok(vec![("a/b c".to_owned(), 12), ("d".to_owned(), 3)]));
        assert_eq!(objects("<ListBucketResult/>"), Ok(Vec::new()));
        assert!(objects("<html></html>").is_err());
        assert!(objects("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>").is_err());
        let refused = "<Error><Code>NoSuchBucket</Code><Message>not &amp; there</Message></Error>";
        assert_eq!(error(refused), Some(("NoSuchBucket".to_owned(), "not & there".to_owned())));
        assert_eq!(error(list), None);
    }
}
