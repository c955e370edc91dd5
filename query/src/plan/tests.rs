mod counterexamples;
mod recorded;
mod routes;
mod shape;
mod support;
