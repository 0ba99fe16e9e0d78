//! The message digests that `mask_hash` knows, by the names that Java has for them: MD2 (RFC 1319), MD5, SHA-1 and SHA-2 (FIPS 180-4), SHA-3
//! (FIPS 202). For masks only: nothing depends on their speed, and nothing is secured by them.

/// A digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Digest {
    Md2,
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha512Of224,
    Sha512Of256,
    Sha3Of224,
    Sha3Of256,
    Sha3Of384,
    Sha3Of512,
}

/// The object identifiers of NIST's algorithms, by their last number.
const NIST: &str = "2.16.840.1.101.3.4.2.";

impl Digest {
    /// The digest of a name or object identifier, in upper or lower case.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_uppercase();
        let id = name.strip_prefix("OID.").unwrap_or(&name);
        if let Some(last) = id.strip_prefix(NIST) {
            return Self::of_nist(last);
        }
        Some(match name.as_str() {
            "MD2" => Self::Md2,
            "MD5" => Self::Md5,
            "SHA" | "SHA-1" | "SHA1" => Self::Sha1,
            "SHA-224" | "SHA224" => Self::Sha224,
            "SHA-256" | "SHA256" => Self::Sha256,
            "SHA-384" | "SHA384" => Self::Sha384,
            "SHA-512" | "SHA512" => Self::Sha512,
            "SHA-512/224" | "SHA512/224" => Self::Sha512Of224,
            "SHA-512/256" | "SHA512/256" => Self::Sha512Of256,
            "SHA3-224" => Self::Sha3Of224,
            "SHA3-256" => Self::Sha3Of256,
            "SHA3-384" => Self::Sha3Of384,
            "SHA3-512" => Self::Sha3Of512,
            _ if id == "1.3.14.3.2.26" => Self::Sha1,
            _ => return None,
        })
    }

    fn of_nist(last: &str) -> Option<Self> {
        Some(match last {
            "1" => Self::Sha256,
            "2" => Self::Sha384,
            "3" => Self::Sha512,
            "4" => Self::Sha224,
            "5" => Self::Sha512Of224,
            "6" => Self::Sha512Of256,
            "7" => Self::Sha3Of224,
            "8" => Self::Sha3Of256,
            "9" => Self::Sha3Of384,
            "10" => Self::Sha3Of512,
            _ => return None,
        })
    }

    /// The digest of some bytes.
    pub(super) fn of(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Md2 => one::<md2::Md2>(data),
            Self::Md5 => md5::compute(data).to_vec(),
            Self::Sha1 => one::<sha1::Sha1>(data),
            Self::Sha224 => one::<sha2::Sha224>(data),
            Self::Sha256 => one::<sha2::Sha256>(data),
            Self::Sha384 => one::<sha2::Sha384>(data),
            Self::Sha512 => one::<sha2::Sha512>(data),
            Self::Sha512Of224 => one::<sha2::Sha512_224>(data),
            Self::Sha512Of256 => one::<sha2::Sha512_256>(data),
            Self::Sha3Of224 => one::<sha3::Sha3_224>(data),
            Self::Sha3Of256 => one::<sha3::Sha3_256>(data),
            Self::Sha3Of384 => one::<sha3::Sha3_384>(data),
            Self::Sha3Of512 => one::<sha3::Sha3_512>(data),
        }
    }
}

fn one<D: sha2::Digest>(data: &[u8]) -> Vec<u8> {
    D::digest(data).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, data: &[u8], expected: &str) {
        let digest = Digest::named(name).unwrap();
        assert_eq!(crate::validate::hex(&digest.of(data)), expected, "{name} of {} bytes", data.len());
    }

    #[test]
    fn digests_of_messages_of_several_blocks_are_those_of_their_standards() {
        let long: Vec<u8> = (0..=255).cycle().take(300).collect();
        check("MD5", b"abc", "900150983cd24fb0d6963f7d28e17f72");
        check("MD5", &long, "17b3839204f7b81a93eb2718b1379e6f");
        check("SHA-1", b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
        check("SHA-1", &long, "bf77ecf143ceb21f1676c34b8d89c8bb3c43cc4e");
        check("SHA-224", b"abc", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        check("SHA-224", &long, "0c82e586f274c06fe5393d20f3692908d3a78ff0034e4c221959f75a");
        check("SHA-256", b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check("SHA-256", &long, "7728ae2f2c36e2aaafbe79ca14c87ae2f89e7c88c4390ecbbf82dce88706958d");
        check(
            "SHA-384",
            b"abc",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        );
        check(
            "SHA-384",
            &long,
            "69672aca50c4279e4cdf788380294d7655bc68c7949e273318d60817f3262cff54e8c78ceaae0853e0a7adf36f392d38",
        );
        check(
            "SHA-512",
            b"abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        );
        check(
            "SHA-512",
            &long,
            "f1dca2eb677b303265b0b9baff0e061202818f35c1470a69bbaa9bb66025e948d90e565e69642506c6213aef3cf9e929357a59da263deb34d1236dbdcda279b3",
        );
        check("SHA-512/224", b"abc", "4634270f707b6a54daae7530460842e20e37ed265ceee9a43e8924aa");
        check("SHA-512/224", &long, "482604d8459e2a3acfeaa168ce00427d87e67751748e4768666e318c");
        check("SHA-512/256", b"abc", "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23");
        check("SHA-512/256", &long, "e8c6690786f704dcd81e091a37ade62feec7150ecdf56885de3c50c01136d17c");
        check("SHA3-224", b"abc", "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf");
        check("SHA3-224", &long, "fc40ee40f2595a8ced1537bf5fb47d1ca83d6857007056f2b3eaee98");
        check("SHA3-256", b"abc", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532");
        check("SHA3-256", &long, "815c06bbeb8520ce61add33a5f47bc558bf00e6361a5640c972d5d4634c58101");
        check(
            "SHA3-384",
            b"abc",
            "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b298d88cea927ac7f539f1edf228376d25",
        );
        check(
            "SHA3-384",
            &long,
            "47aefea93608f52318d433e3bc58bd296f9a88954a9ab47bd7e462468d59eeece908f5e861ee208a44c361831802f11e",
        );
        check(
            "SHA3-512",
            b"abc",
            "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
        );
        check(
            "SHA3-512",
            &long,
            "fa288fe9f54b8301e3012051fb1b275fd3f278a281ef149bb878fd322a647d3f51dc24908905550ed4883870c94f8d297f0690f8661b14d8222e9a46eebcbdf6",
        );
        check("MD2", b"", "8350e5a3e24c153df2275c9f80692773");
        check("MD2", b"message digest", "ab4f496bfb2a530b219ff33031fe06b0");
        let digits = b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        check("MD2", digits, "d5976f79d83d3a0dc9806c3c66f3efd8");
    }

    #[test]
    fn names_are_those_of_java() {
        for name in
            ["md5", "Sha-256", "SHA1", "sha", "OID.1.3.14.3.2.26", "2.16.840.1.101.3.4.2.10", "SHA512/256"]
        {
            assert!(Digest::named(name).is_some(), "{name}");
        }
        for name in ["", "MD4", "SHAKE128", " SHA-256", "SHA-257", "2.16.840.1.101.3.4.2.11", "SHA3512"] {
            assert_eq!(Digest::named(name), None, "{name}");
        }
    }
}
