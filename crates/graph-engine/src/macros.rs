//! The macros that generated code consists of, and the functions that they call.

use std::fmt;

use graph_model::reducer::ReducerError;
use graph_model::value::{AsView, FromValue, Mismatch, Value, View};
use serde::{Deserialize, Deserializer};

use crate::call::Call;
use crate::state::StateFields;
use crate::tool_caller::{Arguments, CallFuture, ToolCaller};

/// How a generated struct is read from JSON and written to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __object {
    (
        $name:ident { $($index:literal $field:ident: $key:literal $(= $default:literal)?),* $(,)? }
        $(needs [$($needed:literal),*])?
    ) => {
        impl $crate::__private::Struct for $name {
            const NAMES: &'static [&'static str] = &[$($key),*];
            const DEFAULTS: &'static [::std::option::Option<&'static str>] = &[$($crate::__optional!($($default)?)),*];
            $(const NEEDED: &'static [usize] = &[$($needed),*];)?

            fn blank() -> Self {
                Self { $($field: $crate::__private::blank()),* }
            }

            fn field(&self, index: usize) -> $crate::__private::View<'_> {
                match index {
                    $($index => $crate::__private::view(&self.$field),)*
                    _ => $crate::__private::View::Null,
                }
            }

            fn set(
                &mut self,
                index: usize,
                value: $crate::__private::Value,
            ) -> ::std::result::Result<(), $crate::__private::Mismatch> {
                match index {
                    $($index => $crate::__private::put(&mut self.$field, value),)*
                    _ => ::std::result::Result::Ok(()),
                }
            }
        }

        $crate::__serde!($name);
    };
}

/// A literal, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __optional {
    () => {
        ::std::option::Option::None
    };
    ($literal:literal) => {
        ::std::option::Option::Some($literal)
    };
}

/// `serde` for a type that is read from JSON and written to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __serde {
    ($name:ident) => {
        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                $crate::__private::serde::Serialize::serialize(&$crate::__private::view(self), serializer)
            }
        }

        impl<'de> $crate::__private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::__private::deserialize(deserializer)
            }
        }
    };
}

/// `Default` for an object whose fields all have one.
#[doc(hidden)]
#[macro_export]
macro_rules! __default {
    ($name:ident) => {
        impl ::std::default::Default for $name {
            fn default() -> Self {
                $crate::__private::from_value($crate::__private::Value::Object(::std::default::Default::default()))
                    .expect("every field has a default")
            }
        }
    };
}

/// How a generated enum is read from JSON and written to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __word {
    ($name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        impl $name {
            /// Returns the word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl $crate::__private::AsView for $name {
            fn view(&self) -> $crate::__private::View<'_> {
                $crate::__private::View::Text(self.as_str())
            }
        }

        impl $crate::__private::FromValue for $name {
            fn from_value(value: $crate::__private::Value) -> ::std::result::Result<Self, $crate::__private::Mismatch> {
                match value.as_str() {
                    $(::std::option::Option::Some($text) => ::std::result::Result::Ok(Self::$variant),)*
                    _ => ::std::result::Result::Err($crate::__private::Mismatch::new(
                        ::std::concat!("one of", $(" `", $text, "`"),*),
                        $crate::__private::view(&value),
                    )),
                }
            }

            fn blank() -> Self {
                [$(Self::$variant),*][0]
            }
        }

        $crate::__serde!($name);
    };
}

/// How an enum of a graph's exits is made from the output of a run, and shown.
#[doc(hidden)]
#[macro_export]
macro_rules! __exits {
    ($name:ident { $($variant:ident = $node:literal),* $(,)? }) => {
        impl $name {
            /// Reads what a run returned that ended at a node.
            fn at(
                node: &str,
                value: $crate::__private::Value,
            ) -> ::std::result::Result<Self, $crate::__private::Mismatch> {
                match node {
                    $($node => $crate::__private::from_value(value).map(Self::$variant),)*
                    _ => $crate::__private::no_such_exit(node),
                }
            }
        }

        impl $crate::__private::AsView for $name {
            fn view(&self) -> $crate::__private::View<'_> {
                match self {
                    $(Self::$variant(output) => $crate::__private::view(output),)*
                }
            }
        }

        // The serialized form does not name its exit, so it cannot be read back by itself.
        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                $crate::__private::serde::Serialize::serialize(&$crate::__private::view(self), serializer)
            }
        }
    };
}

/// How an enum of a graph's signals, or of the answers to its interrupts, is made from the name and the value of one, shown as
/// its value, and sent.
#[doc(hidden)]
#[macro_export]
macro_rules! __signals {
    ($named:ident from $name:ident { $($variant:ident = $signal:literal),* $(,)? }) => {
        impl $name {
            /// Reads the value of one.
            fn at(
                name: &str,
                value: $crate::__private::Value,
            ) -> ::std::result::Result<Self, $crate::__private::Mismatch> {
                match name {
                    $($signal => $crate::__private::from_value(value).map(Self::$variant),)*
                    _ => $crate::__private::no_such_signal(name),
                }
            }

            /// Returns the name in the file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $signal,)*
                }
            }
        }

        impl $crate::__private::AsView for $name {
            fn view(&self) -> $crate::__private::View<'_> {
                match self {
                    $(Self::$variant(value) => $crate::__private::view(value),)*
                }
            }
        }

        impl ::std::convert::From<$name> for $crate::$named {
            fn from(value: $name) -> Self {
                Self::new(value.name(), $crate::__private::view(&value).to_plain_value())
            }
        }
    };
}

/// How a graph's node is shown and written: by its name.
#[doc(hidden)]
#[macro_export]
macro_rules! __node {
    ($name:ident) => {
        impl $crate::machine::NodeEnum for $name {
            const GRAPH: &'static str = ID;
            const ALL: &'static [Self] = Self::ALL;

            fn name(self) -> &'static str {
                Self::name(self)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

/// Takes code for tests into a program.
#[doc(hidden)]
#[macro_export]
macro_rules! __taken {
    ($($code:tt)*) => {
        $($code)*
    };
}

/// Leaves code for tests out of a program.
#[doc(hidden)]
#[macro_export]
macro_rules! __left_out {
    ($($code:tt)*) => {};
}

/// The state's cells, by the index of their keys.
#[doc(hidden)]
#[macro_export]
macro_rules! __cells {
    ($name:ident { $($index:literal $field:ident: $key:literal),* $(,)? }) => {
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $crate::__private::debug_cells(self, &[$($key),*], f)
            }
        }

        impl $name {
            /// The state of a run that is about to begin.
            fn new(inputs: $crate::__private::Value) -> ::std::result::Result<Self, $crate::__private::Mismatch> {
                ::std::result::Result::Ok(Self {
                    inputs: $crate::__private::from_value(inputs)?,
                    $($field: ::std::option::Option::None),*
                })
            }
        }

        impl $crate::__private::StateFields for $name {
            fn inputs(&self) -> $crate::__private::View<'_> {
                $crate::__private::view(&self.inputs)
            }

            fn get(&self, key: usize) -> $crate::__private::View<'_> {
                match key {
                    $($index => $crate::__private::view(&self.$field),)*
                    _ => $crate::__private::View::Null,
                }
            }

            fn check(
                &self,
                key: usize,
                value: &$crate::__private::Value,
            ) -> ::std::result::Result<(), $crate::__private::Mismatch> {
                match key {
                    $($index => $crate::__private::fits(&self.$field, value),)*
                    _ => ::std::result::Result::Ok(()),
                }
            }

            fn set(
                &mut self,
                key: usize,
                value: $crate::__private::Value,
            ) -> ::std::result::Result<(), $crate::__private::Mismatch> {
                match key {
                    $($index => $crate::__private::put(&mut self.$field, value),)*
                    _ => ::std::result::Result::Ok(()),
                }
            }

            fn set_element(
                &mut self,
                key: usize,
                at: usize,
                element: $crate::__private::Value,
            ) -> ::std::result::Result<(), $crate::__private::Mismatch> {
                match key {
                    $($index => $crate::__private::put_element(&mut self.$field, at, element),)*
                    _ => ::std::result::Result::Ok(()),
                }
            }
        }
    };
}

/// Shows a state: its inputs and the keys that are set.
///
/// # Errors
///
/// If the formatter cannot be written to.
pub fn debug_cells(cells: &dyn StateFields, names: &[&str], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut map = f.debug_map();
    map.entry(&"inputs", &cells.inputs());
    for (index, name) in names.iter().enumerate() {
        let view = cells.get(index);
        if !view.is_null() {
            map.entry(name, &view);
        }
    }
    map.finish()
}

/// Reads a generated type with `serde`, by way of JSON.
///
/// # Errors
///
/// If the value is of another type.
pub fn deserialize<'de, T: FromValue, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::from_value(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Says that a program has no tool with that index; only a journal of another graph could ask for one.
///
/// # Errors
///
/// Always.
pub fn no_such_tool<T>(tool: u16) -> Result<T, Mismatch> {
    Err(Mismatch::new(format!("one of the graph's tools, not number {tool}"), View::Null))
}

/// Says that no run of a graph ends at a node; only a journal of another graph could bring one there.
///
/// # Errors
///
/// Always.
pub fn no_such_exit<T>(node: &str) -> Result<T, Mismatch> {
    Err(Mismatch::new(format!("an end at one of the graph's exits, not at `{node}`"), View::Null))
}

/// The tool caller of a graph that calls nothing.
#[derive(Debug)]
pub struct NoTools;

impl ToolCaller for NoTools {
    fn call<'a>(&'a mut self, tool: u16, _: &mut Arguments, _: &'a Call) -> Result<CallFuture<'a>, Mismatch> {
        no_such_tool(tool)
    }

    fn outcome(&self) -> View<'_> {
        View::Null
    }

    fn restore(&mut self, tool: u16, _: Value) -> Result<(), Mismatch> {
        no_such_tool(tool)
    }
}

/// A state whose channels functions of the program combine.
pub struct Reducing<S> {
    /// The state without them.
    pub state: S,
    /// Calls the function of a key, if it has one, with the value and a write.
    pub reduce: fn(usize, Value, Value) -> Option<Result<Value, ReducerError>>,
}

impl<S: fmt::Debug> fmt::Debug for Reducing<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl<S: StateFields> StateFields for Reducing<S> {
    fn inputs(&self) -> View<'_> {
        self.state.inputs()
    }

    fn get(&self, key: usize) -> View<'_> {
        self.state.get(key)
    }

    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch> {
        self.state.check(key, value)
    }

    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch> {
        self.state.set(key, value)
    }

    fn check_element(&self, key: usize, element: &Value) -> Result<(), Mismatch> {
        self.state.check_element(key, element)
    }

    fn set_element(&mut self, key: usize, at: usize, element: Value) -> Result<(), Mismatch> {
        self.state.set_element(key, at, element)
    }

    fn reduce(&self, key: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
        (self.reduce)(key, value.to_plain_value(), write.clone())
    }
}

/// Calls a function of the program that combines a write with a value.
///
/// # Errors
///
/// If the values are not of its types, or it fails.
pub fn reduced<T: FromValue + AsView, W: FromValue>(
    function: fn(Option<T>, W) -> Result<T, ReducerError>,
    value: Value,
    write: Value,
) -> Result<Value, ReducerError> {
    let misfit = |what: &str, mismatch: Mismatch| ReducerError::new(format!("its {what} does not fit: {mismatch}"));
    let value =
        if value.is_null() { None } else { Some(T::from_value(value).map_err(|error| misfit("value", error))?) };
    let write = W::from_value(write).map_err(|error| misfit("write", error))?;
    function(value, write).map(|combined| combined.view().to_plain_value())
}
