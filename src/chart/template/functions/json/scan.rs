//! Finds the first mistake in a JSON text, and names it as Go does.

/// Go's message; `None` if the text is valid JSON by its grammar.
pub(super) fn mistake(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes: text, at: 0 };
    match scanner.document() {
        Ok(()) => None,
        Err(Mistake::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Mistake::At(context)) => {
            let found = match scanner.bytes.get(scanner.at) {
                Some(b'\'') => r"'\''".to_owned(),
                Some(b'"') => "'\"'".to_owned(),
                // Go reads bytes, and prints each as the character with its number.
                Some(b) => {
                    let quoted = super::super::super::unquote::quote(char::from(*b).to_string().as_bytes());
                    format!("'{}'", &quoted[1..quoted.len() - 1])
                }
                None => "' '".to_owned(),
            };
            Some(format!("invalid character {found} {context}"))
        }
    }
}

enum Mistake {
    End,
    At(String),
}

type Scan = Result<(), Mistake>;

struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Scanner<'_> {
    fn document(&mut self) -> Scan {
        // The open collections: true for an object.
        let mut open: Vec<bool> = Vec::new();
        loop {
            let nested = self.value(&mut open)?;
            if nested {
                continue;
            }
            if !self.after_value(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Reads a value up to its end, or up to the first value of a collection: then returns true.
    fn value(&mut self, open: &mut Vec<bool>) -> Result<bool, Mistake> {
        match self.peek_significant()? {
            b'{' => {
                self.at += 1;
                if self.peek_significant()? == b'}' {
                    self.at += 1;
                    return Ok(false);
                }
                open.push(true);
                self.key()?;
                Ok(true)
            }
            b'[' => {
                self.at += 1;
                if self.peek_significant()? == b']' {
                    self.at += 1;
                    return Ok(false);
                }
                open.push(false);
                Ok(true)
            }
            b'"' => self.string().map(|()| false),
            b'-' | b'0'..=b'9' => self.number().map(|()| false),
            b't' => self.literal("true").map(|()| false),
            b'f' => self.literal("false").map(|()| false),
            b'n' => self.literal("null").map(|()| false),
            _ => self.bad("looking for beginning of value").map(|()| false),
        }
    }

    /// Moves to the next value; false at the end of the text.
    fn after_value(&mut self, open: &mut Vec<bool>) -> Result<bool, Mistake> {
        loop {
            let Some(in_object) = open.last().copied() else {
                return match self.peek_significant() {
                    Err(_) => Ok(false),
                    Ok(_) => self.bad("after top-level value").map(|()| false),
                };
            };
            match (self.peek_significant()?, in_object) {
                (b',', true) => {
                    self.at += 1;
                    return self.key().map(|()| true);
                }
                (b',', false) => {
                    self.at += 1;
                    return Ok(true);
                }
                (b'}', true) | (b']', false) => {
                    self.at += 1;
                    open.pop();
                }
                (_, true) => return self.bad("after object key:value pair").map(|()| false),
                (_, false) => return self.bad("after array element").map(|()| false),
            }
        }
    }

    fn key(&mut self) -> Scan {
        if self.peek_significant()? != b'"' {
            return self.bad("looking for beginning of object key string");
        }
        self.string()?;
        if self.peek_significant()? != b':' {
            return self.bad("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                0..b' ' => return self.bad("in string literal"),
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Scan {
        self.at += 1;
        match self.within() {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.within().is_ascii_hexdigit() {
                        return self.bad("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
            }
            _ => return self.bad("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
            self.digit("in numeric literal")?;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits();
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Scan {
        if self.within().is_ascii_digit() { Ok(()) } else { self.bad(context) }
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.chars() {
            if char::from(self.within()) != expected {
                return self.bad(&format!("in literal {word} (expecting '{expected}')"));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Within a word, Go treats the end of the text as a blank.
    fn within(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(b' ')
    }

    fn peek(&self) -> Result<u8, Mistake> {
        self.bytes.get(self.at).copied().ok_or(Mistake::End)
    }

    fn peek_significant(&mut self) -> Result<u8, Mistake> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn bad(&self, context: &str) -> Scan {
        Err(Mistake::At(context.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_as_in_go() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{a}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("1 2", "invalid character '2' after top-level value"),
            ("n", "invalid character ' ' in literal null (expecting 'u')"),
            ("[-", "invalid character ' ' in numeric literal"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("\"", "unexpected end of JSON input"),
            ("tru3", "invalid character '3' in literal true (expecting 'e')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12x4\"", "invalid character 'x' in \\u hexadecimal character escape"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
        ] {
            assert_eq!(mistake(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
        assert_eq!(mistake(b"{\"a\": [1, -2.5e+3, {}, [], null, true, \"\\u00e4\"]} "), None);
        let cut = mistake(b"\xe4");
        assert_eq!(cut.as_deref(), Some("invalid character '\u{e4}' looking for beginning of value"));
    }
}
