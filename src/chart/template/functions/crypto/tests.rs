use super::super::super::tests::{check_all, render};
use crate::pki::AnyKey;

// The output of the real engine for each template; tests/charts/crypto has more, compared with helm itself.

#[test]
fn passwords() {
    check_all(&[
        (r#"{{ derivePassword 1 "long" "password" "user" "example.org" }}"#, Ok("Cefo9$NoflWuyq")),
        (r#"{{ derivePassword 4294967295 "long" "p\u00e4ssword" "" "" }}"#, Ok("Fesl3$SiytVaxe")),
        (r#"{{ derivePassword 1 "other" "a" "b" "c" }}"#, Ok("cannot find password template other")),
        (r#"{{ bcrypt "x" | len }} {{ bcrypt "" | trunc 7 }}"#, Ok("60 $2a$10$")),
        (
            r#"{{ bcrypt (repeat 73 "x") }}"#,
            Ok("failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes"),
        ),
        (
            r#"{{ htpasswd "a:b" "c" }} {{ htpasswd "a" "c" | trunc 9 }}"#,
            Ok("invalid username: a:b a:$2a$10$"),
        ),
        (r#"{{ encryptAES "k" "some text" | decryptAES "k" }}"#, Ok("some text")),
        (r#"{{ encryptAES "k" "" }}{{ decryptAES "k" "" }}"#, Ok("")),
    ]);
}

/// Keys that openssl generated on the curves P-384 and, as PKCS#8, P-256.
const P384: &str = "-----BEGIN EC PRIVATE KEY-----\nMIGkAgEBBDCAMDAh26mOvBIf/SI/jAQaTZ77Oe8XYprWENVWWxHkHZ9Rq6VgppZ4\naz93zpCkyaygBwYFK4EEACKhZANiAARg2zFXbDHZSbOmjrk06QARFahUJVc/FS3L\n+YLfLjo7A2hgZOWfGxRXcq5uDbvDHKu7Y++mLt3M3AEaSErthGxHktrWK3YHuGIn\n3wLjdGiox3wCf3QBHR3UZL2iym7qrWI=\n-----END EC PRIVATE KEY-----\n";
const PKCS8: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgcgtJdUrTFGDoIzqb\nZa3EapqyflI+4Jz4b/COJy0xoJShRANCAASD424VSYO/q0rdyOwGkjKrlQiOK+pu\n7hQXvuxtMDn1EXl3BfniFIPA1gh2rjFKhBOaN61/h7BGciFn4EJxRtNE\n-----END PRIVATE KEY-----\n";

#[test]
fn keys_of_others_are_read_and_written_as_go_writes_them() {
    let p384 = AnyKey::from_pem(P384.as_bytes()).unwrap();
    assert_eq!(p384.to_pem(), P384);
    let p256 = AnyKey::from_pem(PKCS8.as_bytes()).unwrap();
    assert!(
        p256.to_pem().starts_with("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIHILSXVK0xRg6CM6m2WtxGqasn5S")
    );
    for key in [p384, p256] {
        assert!(!key.sign(b"text").unwrap().is_empty());
    }
    for (text, error) in [
        ("", "no PEM data in input"),
        ("-----BEGIN X-----\nAAAA\n-----END X-----\n", "no private key data in PEM block of type X"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIID\n-----END RSA PRIVATE KEY-----\n",
            "parsing RSA private key from PEM: malformed or unsupported key",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n",
            "decoding PEM as PKCS#8: malformed or unsupported key",
        ),
    ] {
        assert_eq!(AnyKey::from_pem(text.as_bytes()).unwrap_err(), error);
    }
}

#[test]
fn certificates_hold_what_was_asked_for() {
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    let template = r#"{{ $ca := genCAWithKey "ca" 2 (genPrivateKey "ecdsa") }}{{ (genSignedCertWithKey "a" (list "10.0.0.1") (list "b") 1 $ca (genPrivateKey "ed25519")).Cert }}"#;
    let text = render(template).unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap();
    let (rest, certificate) = X509Certificate::from_der(&block.contents).unwrap();
    assert!(rest.is_empty());
    assert_eq!(certificate.subject().to_string(), "CN=a");
    assert_eq!(certificate.issuer().to_string(), "CN=ca");
    let names = certificate.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(names.general_names.len(), 2);
    assert_eq!(
        certificate.validity().not_after.timestamp() - certificate.validity().not_before.timestamp(),
        86_400
    );
}
