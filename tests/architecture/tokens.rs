//! The words and signs of Rust source.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The words and signs of Rust source in their order, without comments and literals. `::` is one
/// sign.
pub fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    add(source.parse().unwrap(), &mut tokens);
    tokens
}

fn add(stream: TokenStream, tokens: &mut Vec<String>) {
    let is_colon =
        |tree: &TokenTree| matches!(tree, TokenTree::Punct(sign) if sign.as_char() == ':');
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Parenthesis => ["(", ")"],
                    Delimiter::Brace => ["{", "}"],
                    Delimiter::Bracket => ["[", "]"],
                    Delimiter::None => ["", ""],
                };
                tokens.push(open.to_owned());
                add(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            tree if is_colon(&tree) && trees.next_if(is_colon).is_some() => {
                tokens.push("::".to_owned());
            }
            TokenTree::Ident(word) => tokens.push(word.to_string()),
            TokenTree::Punct(sign) => tokens.push(sign.to_string()),
            TokenTree::Literal(_) => {}
        }
    }
}
