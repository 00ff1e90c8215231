//! Semantic versions.

use std::any::Any;
use std::cmp::Ordering;

use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Native, Str};
use crate::chart::value::{Object, Signature, Value};
use crate::format::semver::{Constraint, Version};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("semver", &[Str], |a| Ok(Value::native(SemVer(parse(&a.str(0))?)))),
    fixed("semverCompare", &[Str, Str], semver_compare),
];

fn parse(text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|e| e.to_string())
}

fn semver_compare(a: &Args<'_>) -> FunctionResult {
    let constraint = Constraint::parse(&a.str(0)).map_err(|e| e.to_string())?;
    Ok(constraint.check(&parse(&a.str(1))?).into())
}

const TYPE_NAME: &str = "*semver.Version";

/// The result of `semver`.
struct SemVer(Version);

impl Object for SemVer {
    fn type_name(&self) -> &'static str {
        TYPE_NAME
    }

    fn kind_name(&self) -> &'static str {
        "ptr"
    }

    fn display(&self) -> String {
        self.0.to_string()
    }

    fn method(&self, name: &str) -> Option<Signature> {
        let fixed: &[_] = match name {
            "Major" | "Minor" | "Patch" | "Prerelease" | "Metadata" | "Original" | "String" | "IncMajor"
            | "IncMinor" | "IncPatch" => &[],
            "SetPrerelease" | "SetMetadata" => &[Str],
            "Compare" | "Equal" | "LessThan" | "LessThanEqual" | "GreaterThan" | "GreaterThanEqual" => {
                &[Native(TYPE_NAME)]
            }
            _ => return None,
        };
        Some(Signature { fixed, variadic: None })
    }

    fn call(&self, name: &str, args: &[Value]) -> Result<Value, String> {
        let version = &self.0;
        let order = || match args {
            [Value::Native(other)] => other.as_any().downcast_ref::<Self>().map(|o| version.cmp(&o.0)),
            _ => None,
        };
        let order = order().unwrap_or(Ordering::Equal);
        Ok(match name {
            "Major" => Value::Uint64(version.major),
            "Minor" => Value::Uint64(version.minor),
            "Patch" => Value::Uint64(version.patch),
            "Prerelease" => version.pre.as_str().into(),
            "Metadata" => version.metadata.as_str().into(),
            "Original" => version.original.as_str().into(),
            "IncMajor" => Value::native(Self(version.inc_major())),
            "IncMinor" => Value::native(Self(version.inc_minor())),
            "IncPatch" => Value::native(Self(version.inc_patch())),
            "SetPrerelease" | "SetMetadata" => self.with_part(name, args)?,
            "Compare" => Value::Int(match order {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            }),
            "Equal" => order.is_eq().into(),
            "LessThan" => order.is_lt().into(),
            "LessThanEqual" => order.is_le().into(),
            "GreaterThan" => order.is_gt().into(),
            "GreaterThanEqual" => order.is_ge().into(),
            _ => version.to_string().into(),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl SemVer {
    fn with_part(&self, name: &str, args: &[Value]) -> Result<Value, String> {
        let part = args.first().and_then(Value::as_text).map(|t| t.to_str().into_owned()).unwrap_or_default();
        let (pre, metadata) = match name {
            "SetPrerelease" => (part, self.0.metadata.clone()),
            _ => (self.0.pre.clone(), part),
        };
        let Version { major, minor, patch, .. } = self.0;
        let mark =
            |sign: &str, text: &str| if text.is_empty() { String::new() } else { format!("{sign}{text}") };
        let text = format!("{major}.{minor}.{patch}{}{}", mark("-", &pre), mark("+", &metadata));
        parse(&text).map(|v| Value::native(Self(v)))
    }
}
