//! Rust types for the graph's types: a struct for each object, an enum for each enumeration, each once.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, identifier, pascal_text, snake_text};
use crate::types::{Type, TypeKind, TypedField};

/// The named types of a module. Equal types share a name.
pub(super) struct NamedTypes {
    scope: Scope,
    /// The types that have a name, here or in the module of a contract, with the path of it. Descriptions are left out, so that the
    /// names in the module of a contract do not depend on them.
    known: Vec<(TypeKind, TokenStream)>,
    tokens: TokenStream,
}

/// A field of a struct.
struct StructMember<'f> {
    ident: Ident,
    field: &'f TypedField,
    ty: TokenStream,
}

impl NamedTypes {
    pub(super) fn new(scope: Scope, known: Vec<(TypeKind, TokenStream)>) -> Self {
        Self { scope, known, tokens: TokenStream::new() }
    }

    /// Returns the types that have a name, with the path of it.
    pub(super) fn known(self) -> Vec<(TypeKind, TokenStream)> {
        self.known
    }

    /// Returns the definitions of the types that were named so far.
    pub(super) fn tokens(&self) -> &TokenStream {
        &self.tokens
    }

    /// Claims a name for a type of the module itself.
    fn claim(&mut self, wanted: &str) -> Ident {
        identifier(&self.scope.claim(&pascal_text(wanted)))
    }

    /// Defines `ident`, which the module reserved, as a struct of `fields`, for a tool's parameters. The struct can be written as
    /// JSON only if the runtime performs the tool, and in tests.
    pub(super) fn define(&mut self, ident: &Ident, fields: &[TypedField], doc: &str, as_json: bool) {
        let members = self.members(ident, fields);
        let tokens = definition(ident, &members, doc);
        let rules = rules(ident, &members);
        let rules = if as_json { rules } else { quote!(runtime::testing!(#rules);) };
        self.tokens.extend(quote!(#tokens #rules));
    }

    /// Defines `name`, which the module reserved, as a struct of `fields`; without fields, as an untyped object.
    pub(super) fn named_object(&mut self, name: &str, fields: Option<&[TypedField]>, doc: &str) -> TokenStream {
        let ident = identifier(name);
        match fields {
            Some(fields) => self.structure(&ident, fields, doc),
            None => {
                let doc = docs(doc);
                quote!(#doc pub type #ident = ::graph_runtime::Map<String, ::graph_runtime::Value>;)
            }
        }
    }

    /// Defines `name`, which the module reserved, as the Rust type of `ty`.
    pub(super) fn named(&mut self, name: &str, ty: &Type, doc: &str) -> TokenStream {
        if let (TypeKind::Object(fields), false) = (&ty.kind, ty.nullable) {
            return self.structure(&identifier(name), fields, doc);
        }
        let ident = identifier(name);
        let rust = self.rust(ty, name);
        let doc = docs(doc);
        quote!(#doc pub type #ident = #rust;)
    }

    /// Returns the Rust type of `ty`. A type that needs a name gets one that is made of `hint`.
    pub(super) fn rust(&mut self, ty: &Type, hint: &str) -> TokenStream {
        let rust = match &ty.kind {
            // A value of any type may also be null.
            TypeKind::Any if ty.secret => return quote!(::graph_runtime::Secret<::graph_runtime::Value>),
            TypeKind::Any | TypeKind::Never => return quote!(::graph_runtime::Value),
            TypeKind::Boolean => quote!(bool),
            TypeKind::Integer => quote!(i64),
            TypeKind::Number => quote!(::graph_runtime::Number),
            TypeKind::String => quote!(String),
            TypeKind::List(items) => {
                let items = self.rust(items, &format!("{hint} item"));
                quote!(Vec<#items>)
            }
            TypeKind::Map(values) if matches!(values.kind, TypeKind::Any) && !values.secret => {
                quote!(::graph_runtime::Map<String, ::graph_runtime::Value>)
            }
            TypeKind::Map(values) => {
                let values = self.rust(values, &format!("{hint} value"));
                quote!(::graph_runtime::IndexMap<String, #values>)
            }
            TypeKind::Enum(_) | TypeKind::Object(_) => self.intern(&ty.kind, hint),
        };
        let rust = if ty.secret { quote!(::graph_runtime::Secret<#rust>) } else { rust };
        if ty.nullable { quote!(Option<#rust>) } else { rust }
    }

    /// Returns the Rust type of a run's output if it ends at `node`. An object is named after the node, even if it
    /// equals another type, which then has two names.
    pub(super) fn exit(&mut self, node: &str, ty: &Type) -> TokenStream {
        let hint = format!("{node} output");
        let (TypeKind::Object(_), false) = (&ty.kind, ty.nullable) else { return self.rust(ty, &hint) };
        self.called(&ty.kind, &hint, &format!("The output of a run that ends at `{node}`."))
    }

    /// Defines `name`, which the module reserved, as the Rust type of all values of `ty`. If such a value may be null or is a secret,
    /// the type of the value itself has another name.
    pub(super) fn whole(&mut self, name: &str, ty: &Type, doc: &str) {
        let ident = identifier(name);
        let is_named = matches!(ty.kind, TypeKind::Object(_) | TypeKind::Enum(_));
        if is_named && self.name_of(&ty.kind).is_none() && !ty.nullable && !ty.secret {
            self.introduce(&ident, &ty.kind, doc);
            return;
        }
        let rust = self.rust(ty, &if is_named { format!("{name} value") } else { name.to_owned() });
        let doc = docs(doc);
        self.tokens.extend(quote!(#doc pub type #ident = #rust;));
    }

    /// Returns the Rust type of a value that a run receives. An object has the name `hint`, even if it equals another type, which
    /// then has two names.
    pub(super) fn received(&mut self, hint: &str, doc: &str, ty: &Type) -> TokenStream {
        let (TypeKind::Object(_), false) = (&ty.kind, ty.nullable) else { return self.rust(ty, hint) };
        self.called(&ty.kind, hint, doc)
    }

    /// Returns a name made of `hint` for an object or enumeration: an alias if the type has a name already.
    fn called(&mut self, kind: &TypeKind, hint: &str, doc: &str) -> TokenStream {
        let Some(other) = self.name_of(kind) else {
            let ident = self.claim(hint);
            self.introduce(&ident, kind, doc);
            return quote!(#ident);
        };
        let (ident, doc) = (self.claim(hint), docs(doc));
        self.tokens.extend(quote!(#doc pub type #ident = #other;));
        quote!(#ident)
    }

    /// Returns the name of an object or enumeration, and defines the type when it occurs first.
    fn intern(&mut self, kind: &TypeKind, hint: &str) -> TokenStream {
        if let Some(name) = self.name_of(kind) {
            return name;
        }
        let ident = self.claim(hint);
        self.introduce(&ident, kind, &format!("An object of the graph: {hint}."));
        quote!(#ident)
    }

    fn name_of(&self, kind: &TypeKind) -> Option<TokenStream> {
        let kind = kind.undescribed();
        self.known.iter().find(|(known, _)| *known == kind).map(|(_, name)| name.clone())
    }

    /// Defines a name that was claimed as an object or enumeration.
    fn introduce(&mut self, ident: &Ident, kind: &TypeKind, doc: &str) {
        self.known.push((kind.undescribed(), quote!(#ident)));
        let tokens = match kind {
            TypeKind::Enum(texts) => enumeration(ident, texts),
            TypeKind::Object(fields) => self.structure(ident, fields, doc),
            _ => TokenStream::new(),
        };
        self.tokens.extend(tokens);
    }

    /// Defines a struct, and how it is read and written.
    fn structure(&mut self, ident: &Ident, fields: &[TypedField], doc: &str) -> TokenStream {
        let members = self.members(ident, fields);
        let (definition, rules) = (definition(ident, &members, doc), rules(ident, &members));
        let has_default = |member: &StructMember<'_>| member.field.ty.nullable || member.field.default.is_some();
        let default = members.iter().all(has_default).then(|| quote!(runtime::default!(#ident);));
        quote!(#definition #rules #default)
    }

    fn members<'f>(&mut self, ident: &Ident, fields: &'f [TypedField]) -> Vec<StructMember<'f>> {
        let mut scope = Scope::new();
        fields
            .iter()
            .map(|field| StructMember {
                ident: identifier(&scope.claim(&snake_text(&field.name))),
                field,
                ty: self.rust(&field.ty, &format!("{ident} {}", field.name)),
            })
            .collect()
    }

    /// Returns the names of fields without defining a struct, for a tool's parameters.
    pub(super) fn field_idents(fields: &[TypedField]) -> Vec<Ident> {
        let mut scope = Scope::new();
        fields.iter().map(|field| identifier(&scope.claim(&snake_text(&field.name)))).collect()
    }
}

/// Returns rules as documentation shows them.
fn shown_rules(rules: &[String]) -> String {
    let shown = |rule: &String| format!("`{}`", rule.replace('`', "'"));
    rules.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn definition(ident: &Ident, members: &[StructMember<'_>], doc: &str) -> TokenStream {
    let fields = members.iter().map(|StructMember { ident, field, ty }| {
        let mut doc = field.description.clone().unwrap_or_else(|| format!("`{}`.", field.name));
        if !field.rules.is_empty() {
            doc += &format!("\n\nRules: {}.", shown_rules(&field.rules));
        }
        let doc = docs(&doc);
        quote!(#doc pub #ident: #ty)
    });
    let doc = docs(doc);
    quote! {
        #doc
        #[derive(Debug, Clone, PartialEq)]
        pub struct #ident {
            #(#fields),*
        }
    }
}

/// Expands how a struct is read from JSON and written to it.
fn rules(ident: &Ident, members: &[StructMember<'_>]) -> TokenStream {
    let fields = members.iter().enumerate().map(|(index, StructMember { ident, field, .. })| {
        let (index, name) = (Literal::usize_unsuffixed(index), &field.name);
        match &field.default {
            Some(default) => {
                let default = default.to_string();
                quote!(#index #ident: #name = #default)
            }
            None => quote!(#index #ident: #name),
        }
    });
    let needed: Vec<Literal> = members
        .iter()
        .enumerate()
        .filter(|(_, member)| is_needed(member.field))
        .map(|(index, _)| Literal::usize_unsuffixed(index))
        .collect();
    let needs = (!needed.is_empty()).then(|| quote!(needs [#(#needed),*]));
    quote!(runtime::object!(#ident { #(#fields),* } #needs);)
}

/// Whether a field accepts any value except null, which its Rust type does not express.
pub(super) fn is_needed(field: &TypedField) -> bool {
    field.ty.kind == TypeKind::Any && field.is_required()
}

fn enumeration(ident: &Ident, texts: &[String]) -> TokenStream {
    let mut scope = Scope::new();
    let variants: Vec<Ident> = texts.iter().map(|text| identifier(&scope.claim(&pascal_text(text)))).collect();
    let docs = texts.iter().map(|text| docs(&format!("`{text}`.")));
    quote! {
        /// One of a few words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum #ident {
            #(#docs #variants),*
        }
        runtime::word!(#ident { #(#variants = #texts),* });
    }
}
