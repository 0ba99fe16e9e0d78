//! The languages that words can be stemmed in.

use rust_stemmers::Algorithm;

/// A language that words can be stemmed in.
pub(crate) struct Language {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its code in ISO 639-1, as locales have it.
    pub(crate) code: &'static str,
    pub(crate) algorithm: Algorithm,
}

const fn language(name: &'static str, code: &'static str, algorithm: Algorithm) -> Language {
    Language { name, code, algorithm }
}

/// The languages, by name. Greek is not there: its stemmer cuts words at bytes that they do not have (rust-stemmers 1.2).
pub(crate) const LANGUAGES: [Language; 17] = [
    language("arabic", "ar", Algorithm::Arabic),
    language("danish", "da", Algorithm::Danish),
    language("dutch", "nl", Algorithm::Dutch),
    language("english", "en", Algorithm::English),
    language("finnish", "fi", Algorithm::Finnish),
    language("french", "fr", Algorithm::French),
    language("german", "de", Algorithm::German),
    language("hungarian", "hu", Algorithm::Hungarian),
    language("italian", "it", Algorithm::Italian),
    language("norwegian", "no", Algorithm::Norwegian),
    language("portuguese", "pt", Algorithm::Portuguese),
    language("romanian", "ro", Algorithm::Romanian),
    language("russian", "ru", Algorithm::Russian),
    language("spanish", "es", Algorithm::Spanish),
    language("swedish", "sv", Algorithm::Swedish),
    language("tamil", "ta", Algorithm::Tamil),
    language("turkish", "tr", Algorithm::Turkish),
];

impl Language {
    /// By its name, in any case.
    pub(crate) fn of_name(name: &str) -> Option<&'static Self> {
        LANGUAGES.iter().find(|language| language.name.eq_ignore_ascii_case(name))
    }

    /// Of a locale like `en` or `en_US`.
    pub(crate) fn of_locale(locale: &str) -> Option<&'static Self> {
        let code = locale.split(['_', '-']).next()?;
        LANGUAGES.iter().find(|language| language.code.eq_ignore_ascii_case(code))
    }
}
