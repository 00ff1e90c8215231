//! A generated template as a tree, so that a failing case can be minimized and still be a template.

/// The kinds of a place, which restrict its replacements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Text and actions; may be empty.
    Block,
    /// One argument.
    Operand,
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Text(String),
    Tree(Tree),
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    sort: Sort,
    pieces: Vec<Piece>,
}

impl Tree {
    pub(crate) fn leaf(sort: Sort, text: impl Into<String>) -> Self {
        Self { sort, pieces: vec![Piece::Text(text.into())] }
    }

    pub(crate) fn new(sort: Sort, pieces: Vec<Piece>) -> Self {
        Self { sort, pieces }
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Tree(tree) => tree.write(out),
            }
        }
    }

    /// The tree with another text in place of each computed argument that is to be replaced; `None` if there is none.
    pub(crate) fn replaced(&self, is_replaced: &dyn Fn(&str) -> bool, by: &str) -> Option<Self> {
        if self.sort == Sort::Operand && self.pieces.len() > 1 && is_replaced(&self.text()) {
            return Some(Self::leaf(Sort::Operand, by));
        }
        let (mut tree, mut is_changed) = (self.clone(), false);
        for piece in &mut tree.pieces {
            if let Piece::Tree(inner) = piece
                && let Some(other) = inner.replaced(is_replaced, by)
            {
                (*inner, is_changed) = (other, true);
            }
        }
        is_changed.then_some(tree)
    }

    /// Trees with one place simplified, the greatest changes first.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut found = Vec::new();
        match self.sort {
            Sort::Block if !self.pieces.is_empty() => found.push(Self::new(Sort::Block, Vec::new())),
            Sort::Operand if self.pieces.len() > 1 => {
                found.extend(
                    ["nil", "1", "\"\"", "(list)", "(dict)"].map(|text| Self::leaf(Sort::Operand, text)),
                );
            }
            _ => {}
        }
        for (n, piece) in self.pieces.iter().enumerate() {
            let Piece::Tree(inner) = piece else { continue };
            if inner.sort == self.sort {
                found.push(inner.clone());
            }
            found.extend(inner.simpler().into_iter().map(|simple| {
                let mut tree = self.clone();
                tree.pieces[n] = Piece::Tree(simple);
                tree
            }));
        }
        found
    }
}
