use super::*;

#[test]
fn versions_are_read_and_completed() {
    for (text, full) in [
        ("1", "1.0.0"),
        ("v1.2", "1.2.0"),
        ("1.2.3-rc.1+build.5", "1.2.3-rc.1+build.5"),
        ("1.30.4-gke.100", "1.30.4-gke.100"),
        ("01.02", "1.2.0"),
        ("1-a--b", "1.0.0-a--b"),
    ] {
        assert_eq!(Version::parse(text).unwrap().to_string(), full);
    }
    for text in ["", "v", "1.", "1.2.3.4", "a", "1.2.3-", "1.2-a..b", "1 ", "V1", "1.2.3-01", "1+", "-1"] {
        assert!(Version::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        Version::parse("99999999999999999999").unwrap_err(),
        Error::Number("99999999999999999999".to_owned())
    );
    assert_eq!(Constraint::parse("^1.18446744073709551616").unwrap_err(), Error::ConstraintVersion);
    assert_eq!(Version::parse(&"1".repeat(257)).unwrap_err(), Error::VersionLength);
    assert!(Version::is_strict("1.2.3-a+b") && !Version::is_strict("1.2") && !Version::is_strict("1.02.3"));
}

#[test]
fn versions_are_ordered() {
    let ordered =
        ["1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0", "1.0.1"];
    for pair in ordered.windows(2) {
        assert!(Version::parse(pair[0]).unwrap() < Version::parse(pair[1]).unwrap(), "{pair:?}");
    }
    assert_eq!(Version::parse("1.0.0+a").unwrap(), Version::parse("v1+b").unwrap());
    let version = Version::parse("v1.2.3-rc1").unwrap();
    assert_eq!(version.inc_patch().original, "v1.2.3");
    assert_eq!(
        (version.inc_minor().to_string(), version.inc_major().to_string()),
        ("1.3.0".into(), "2.0.0".into())
    );
}

#[test]
fn constraints_hold_where_upstream_says_so() {
    for (constraint, version, holds) in [
        ("*", "1.2.3", true),
        ("*", "1.2.3-a", false),
        (">=0-0", "1.2.3-a", true),
        (">=1.30-0", "1.30.1-gke.5", true),
        (">=1.30", "1.30.1-gke.5", false),
        (">=1.20, <1.30", "1.25.0", true),
        (">=1.20 <1.30", "1.30.0", false),
        (">= 1.20 < 1.30 || >=2", "2.1.0", true),
        ("1.2 - 1.4", "1.4.9", true),
        ("1.2.3 - 1.4.5", "1.4.6", false),
        ("1.2.3 - 1.4.5 || 3", "3.9.0", true),
        (">1.2", "1.2.9", false),
        (">1.2", "1.3.0", true),
        (">1", "1.9.0", false),
        ("<=1.2", "1.2.9", true),
        ("<=1", "1.9.0", true),
        ("<=1.2.3", "1.2.4", false),
        ("~1.2.3", "1.2.9", true),
        ("~1.2.3", "1.3.0", false),
        ("~>1", "1.9.9", true),
        ("~0.0.0", "9.0.0", true),
        ("^1.2.3", "1.9.0", true),
        ("^1.2.3", "1.2.2", false),
        ("^0.2.3", "0.3.0", false),
        ("^0.0.3", "0.0.4", false),
        ("^0.0", "0.0.9", true),
        ("^0", "0.9.0", true),
        ("1.x", "1.9.0", true),
        ("1.2.*", "1.3.0", false),
        ("v1.2.3", "1.2.3", true),
        ("=1.2.3", "1.2.4", false),
        ("!=1.2.3", "1.2.3", false),
        ("!=1.2", "1.2.3", false),
        ("!=1", "2.0.0", true),
        ("=>1", "1.0.0", true),
        ("^3.0.0-0", "3.1.0-rc1", true),
    ] {
        let version = Version::parse(version).unwrap();
        assert_eq!(Constraint::parse(constraint).unwrap().check(&version), holds, "{constraint} {version}");
    }
}

#[test]
fn invalid_constraints_are_refused() {
    for text in ["", ">=", "foo", "1.2 foo", ">>1", "1 ||", "1.2.3.4", ">1;<2", ">1 2 - 3"] {
        assert!(Constraint::parse(text).is_err(), "{text}");
    }
    assert_eq!(Constraint::parse(&"1".repeat(513)).unwrap_err(), Error::ConstraintLength);
    assert_eq!(Constraint::parse(&vec!["1"; 33].join(" || ")).unwrap_err(), Error::ConstraintGroups);
}
