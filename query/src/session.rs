//! What all queries share (functions, memory, settings), and what each query has of its own (a snapshot, the tables in
//! it, the time that it calls now).
//!
//! Names keep their case and are never folded: `SELECT Load FROM Node` asks for a column `Load` of a metric `Node`,
//! quoted or not. Keywords and functions may be written in any case. Quotes are needed only around names that are not
//! plain identifiers: `"sys.cpu.user"`.

pub mod plain;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::CatalogProviderList;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool, TrackConsumersPool};
use datafusion::execution::registry::FunctionRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::prelude::SessionConfig;
use telem_engine::Timestamp;

use crate::catalog::Catalog;
use crate::cluster::lost::Attempt;
use crate::error::Result;
use crate::functions;
use crate::guard;
use crate::leaf::LeafContext;
use crate::options::{BATCH_ROWS, CATALOG, QueryOptions, RowOrder, SCHEMA};
use crate::table::{AskDigests, NamedArguments, asof, downsample, gaps};
use crate::view::View;
use plain::PlainRules;

/// How many operators are named when memory runs out.
const BLAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

/// States that are kept for the next questions: a copy of the template makes those of hundreds of functions.
const IDLE_STATES_MAX: usize = 4;

/// One a process: the memory that its queries share, and what they all know.
#[derive(Clone, Debug)]
pub struct Session {
    template: SessionState,
    plain: PlainRules,
    idle: Arc<IdleStates>,
}

/// States that no question has.
#[derive(Debug)]
struct IdleStates {
    states: Mutex<Vec<SessionState>>,
    /// What they have of questions meanwhile: nothing.
    config: SessionConfig,
    catalogs: Arc<dyn CatalogProviderList>,
}

/// What one question is planned in. Another one gets it afterwards.
#[derive(Debug)]
pub struct QuestionState {
    /// Taken when this is dropped.
    state: Option<SessionState>,
    idle: Arc<IdleStates>,
}

impl Deref for QuestionState {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        self.state.as_ref().expect("the state is taken only when this is dropped")
    }
}

impl DerefMut for QuestionState {
    fn deref_mut(&mut self) -> &mut SessionState {
        self.state.as_mut().expect("the state is taken only when this is dropped")
    }
}

impl Drop for QuestionState {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        // Neither the tables of a question nor its snapshot stay behind.
        state.register_catalog_list(Arc::clone(&self.idle.catalogs));
        *state.config_mut() = self.idle.config.clone();
        *state.execution_props_mut() = ExecutionProps::new();
        let mut states = self.idle.states.lock().unwrap_or_else(PoisonError::into_inner);
        if states.len() < IDLE_STATES_MAX {
            states.push(state);
        }
    }
}

impl Session {
    /// # Errors
    /// Internal when DataFusion refuses these settings.
    pub fn new(options: &QueryOptions) -> Result<Self> {
        let pool = TrackConsumersPool::new(FairSpillPool::new(options.memory_bytes_max), BLAMED_CONSUMERS);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            // Temporary files are memory on many compute nodes, so spilling would not save any.
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()?;
        let mut config = SessionConfig::new()
            .with_target_partitions(options.threads.max(1))
            .with_batch_size(BATCH_ROWS)
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_extension(Arc::new(options.clone()));
        config.options_mut().sql_parser.enable_ident_normalization = false;
        let builder = SessionStateBuilder::new_with_default_features().with_config(config).with_runtime_env(runtime);
        let mut template = guard::rules(builder).with_optimizer_rule(Arc::new(AskDigests)).build();
        for name in functions::LEFT_OUT {
            template.deregister_udf(name)?;
        }
        for name in functions::LAMBDAS_LEFT_OUT {
            template.deregister_higher_order_function(name)?;
        }
        for function in functions::scalar_functions() {
            template.register_udf(function)?;
        }
        for function in functions::aggregate_functions() {
            template.register_udaf(function)?;
        }
        #[cfg(test)]
        template.register_udf(Arc::new(crate::testing::hold()))?;
        guard::wrap_functions(&mut template)?;
        template.register_udtf(asof::NAME, Arc::new(asof::AsofFunction));
        template.register_udtf(downsample::NAME, Arc::new(downsample::DownsampleFunction));
        template.register_udtf(gaps::NAME, Arc::new(gaps::GapsFunction));
        template.register_relation_planner(Arc::new(NamedArguments))?;
        let plain = PlainRules::of(&template);
        let (config, catalogs) = (template.config().clone(), Arc::clone(template.catalog_list()));
        Ok(Self { template, plain, idle: Arc::new(IdleStates { states: Mutex::default(), config, catalogs }) })
    }

    /// The rules that plain plans need.
    pub(crate) fn plain(&self) -> &PlainRules {
        &self.plain
    }

    /// The memory that queries share.
    pub(crate) fn memory_pool(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.template.runtime_env().memory_pool)
    }

    /// What states are made from.
    pub(crate) fn template(&self) -> &SessionState {
        &self.template
    }

    /// From now on tasks are configured so: this includes what sends them to nodes.
    pub(crate) fn configure(&mut self, config: SessionConfig) {
        *self.template.config_mut() = config;
    }

    /// What one query is planned in: the tables that it sees, and `now` for `now()`.
    pub fn state(&self, context: &LeafContext, view: &View, now: Timestamp, order: RowOrder) -> QuestionState {
        let idle = self.idle.states.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let state = match idle {
            Some(mut state) => {
                *state.config_mut() = self.template.config().clone();
                state
            }
            None => self.template.clone(),
        };
        let mut state = QuestionState { state: Some(state), idle: Arc::clone(&self.idle) };
        state.register_catalog_list(Arc::new(Catalog::new(view.clone())));
        state.config_mut().set_extension(Arc::new(view.clone()));
        state.config_mut().set_extension(Arc::new(order));
        if order == RowOrder::Stored {
            // Nothing between the leaf and the answer may mix the rows of several parts.
            state.config_mut().options_mut().execution.target_partitions = 1;
        }
        state.config_mut().set_extension(Arc::new(context.clone()));
        let config_options = Arc::clone(state.config().options());
        let props = state.execution_props_mut();
        props.query_execution_start_time = chrono::DateTime::from_timestamp_micros(now.micros());
        props.alias_generator = Arc::default();
        props.config_options = Some(config_options);
        state
    }

    /// What plans execute in when they were built without SQL.
    pub(crate) fn task_ctx(&self, context: LeafContext, attempt: Option<Arc<Attempt>>) -> Arc<TaskContext> {
        let mut config = self.template.config().clone().with_extension(Arc::new(context));
        if let Some(attempt) = attempt {
            config.set_extension(attempt);
        }
        self.task_of(config)
    }

    /// What plans execute in that stay in this process: they carry their functions, so none is looked up by name.
    pub(crate) fn task_of(&self, config: SessionConfig) -> Arc<TaskContext> {
        let (session, runtime) = (self.template.session_id().to_owned(), Arc::clone(self.template.runtime_env()));
        let (scalar, higher_order) = (HashMap::new(), HashMap::new());
        let (aggregate, window) = (HashMap::new(), HashMap::new());
        Arc::new(TaskContext::new(None, session, config, scalar, higher_order, aggregate, window, runtime))
    }
}
