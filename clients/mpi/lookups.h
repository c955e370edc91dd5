/*
 * lookups.h: functions of MPI of which calls and time are counted and nothing else: most of them only look something up.
 *
 * None has more than twelve arguments, a floating one, or a structure by value. MPI_Wtime, MPI_Wtick and MPI_Pcontrol
 * have, and the conversions of handles return what is wider in some MPI: they are left out.
 */
#define LOOKUPS_3(X)                                                                                                   \
    X(Add_error_class) X(Add_error_code) X(Add_error_string) X(Alloc_mem) X(Attr_delete) X(Attr_get) X(Attr_put)       \
    X(Buffer_attach) X(Buffer_detach) X(Cart_coords) X(Cart_get) X(Cart_map) X(Cart_rank) X(Cart_shift)                \
    X(Cartdim_get) X(Close_port) X(Comm_call_errhandler) X(Comm_compare) X(Comm_create_errhandler)                     \
    X(Comm_create_keyval) X(Comm_delete_attr) X(Comm_free_keyval) X(Comm_get_attr) X(Comm_get_errhandler)              \
    X(Comm_get_info) X(Comm_get_name) X(Comm_get_parent) X(Comm_group) X(Comm_join) X(Comm_rank) X(Comm_remote_group)  \
    X(Comm_remote_size) X(Comm_set_attr) X(Comm_set_errhandler) X(Comm_set_info) X(Comm_set_name) X(Comm_size)         \
    X(Comm_test_inter) X(Dims_create) X(Dist_graph_neighbors) X(Dist_graph_neighbors_count) X(Errhandler_free)         \
    X(Error_class) X(Error_string) X(File_call_errhandler) X(File_create_errhandler) X(File_delete) X(File_get_amode)  \
    X(File_get_atomicity) X(File_get_byte_offset) X(File_get_errhandler) X(File_get_group) X(File_get_info)            \
    X(File_get_position) X(File_get_position_shared) X(File_get_size) X(File_get_type_extent) X(File_get_view)         \
    X(File_seek) X(File_seek_shared) X(File_set_atomicity) X(File_set_errhandler) X(File_set_info) X(Finalized)        \
    X(Free_mem) X(Get_address) X(Get_count) X(Get_elements) X(Get_elements_x) X(Get_library_version)                   \
    X(Get_processor_name) X(Get_version) X(Graph_get) X(Graph_map) X(Graph_neighbors) X(Graph_neighbors_count)         \
    X(Graphdims_get) X(Grequest_complete) X(Grequest_start) X(Group_compare) X(Group_difference) X(Group_excl)         \
    X(Group_free) X(Group_incl) X(Group_intersection) X(Group_range_excl) X(Group_range_incl) X(Group_rank)            \
    X(Group_size) X(Group_translate_ranks) X(Group_union) X(Info_create) X(Info_delete) X(Info_dup) X(Info_free)       \
    X(Info_get) X(Info_get_nkeys) X(Info_get_nthkey) X(Info_get_valuelen) X(Info_set) X(Initialized)                   \
    X(Is_thread_main) X(Keyval_create) X(Keyval_free) X(Lookup_name) X(Op_commutative) X(Op_create) X(Op_free)         \
    X(Open_port) X(Pack) X(Pack_external) X(Pack_external_size) X(Pack_size) X(Publish_name) X(Query_thread)           \
    X(Reduce_local) X(Register_datarep) X(Status_c2f) X(Status_f2c) X(Status_set_cancelled) X(Status_set_elements)     \
    X(Status_set_elements_x) X(Test_cancelled) X(Topo_test) X(Type_commit) X(Type_contiguous) X(Type_create_darray)    \
    X(Type_create_f90_complex) X(Type_create_f90_integer) X(Type_create_f90_real) X(Type_create_hindexed)              \
    X(Type_create_hindexed_block) X(Type_create_hvector) X(Type_create_indexed_block) X(Type_create_keyval)            \
    X(Type_create_resized) X(Type_create_struct) X(Type_create_subarray) X(Type_delete_attr) X(Type_dup)               \
    X(Type_free_keyval) X(Type_get_attr) X(Type_get_contents) X(Type_get_envelope) X(Type_get_extent)                  \
    X(Type_get_extent_x) X(Type_get_name) X(Type_get_true_extent) X(Type_get_true_extent_x) X(Type_indexed)            \
    X(Type_match_size) X(Type_set_attr) X(Type_set_name) X(Type_size) X(Type_size_x) X(Type_vector) X(Unpack)          \
    X(Unpack_external) X(Unpublish_name) X(Win_attach) X(Win_call_errhandler) X(Win_create_errhandler)                 \
    X(Win_create_keyval) X(Win_delete_attr) X(Win_detach) X(Win_free_keyval) X(Win_get_attr) X(Win_get_errhandler)     \
    X(Win_get_group) X(Win_get_info) X(Win_get_name) X(Win_set_attr) X(Win_set_errhandler) X(Win_set_info)             \
    X(Win_set_name) X(Win_shared_query)

#define LOOKUPS_4(X)                                                                                                   \
    X(Address) X(Aint_add) X(Aint_diff) X(Allgather_init) X(Allgather_init_c) X(Allgatherv_init) X(Allgatherv_init_c)  \
    X(Allreduce_init) X(Allreduce_init_c) X(Alltoall_init) X(Alltoall_init_c) X(Alltoallv_init) X(Alltoallv_init_c)    \
    X(Alltoallw_init) X(Alltoallw_init_c) X(Barrier_init) X(Bcast_init) X(Bcast_init_c) X(Buffer_attach_c)             \
    X(Buffer_detach_c) X(Comm_idup_with_info) X(Errhandler_create) X(Errhandler_get) X(Errhandler_set) X(Exscan_init)  \
    X(Exscan_init_c) X(File_get_type_extent_c) X(Gather_init) X(Gather_init_c) X(Gatherv_init) X(Gatherv_init_c)       \
    X(Get_count_c) X(Get_elements_c) X(Group_from_session_pset) X(Info_create_env) X(Info_get_string)                  \
    X(Intercomm_create_from_groups) X(Isendrecv) X(Isendrecv_c) X(Isendrecv_replace) X(Isendrecv_replace_c)            \
    X(Neighbor_allgather_init) X(Neighbor_allgather_init_c) X(Neighbor_allgatherv_init) X(Neighbor_allgatherv_init_c)  \
    X(Neighbor_alltoall_init) X(Neighbor_alltoall_init_c) X(Neighbor_alltoallv_init) X(Neighbor_alltoallv_init_c)      \
    X(Neighbor_alltoallw_init) X(Neighbor_alltoallw_init_c) X(Op_create_c) X(Pack_c) X(Pack_external_c)                \
    X(Pack_external_size_c) X(Pack_size_c) X(Pready_list) X(Precv_init) X(Psend_init) X(Reduce_init) X(Reduce_init_c)  \
    X(Reduce_local_c) X(Reduce_scatter_block_init) X(Reduce_scatter_block_init_c) X(Reduce_scatter_init)               \
    X(Reduce_scatter_init_c) X(Register_datarep_c) X(Scan_init) X(Scan_init_c) X(Scatter_init) X(Scatter_init_c)       \
    X(Scatterv_init) X(Scatterv_init_c) X(Session_call_errhandler) X(Session_create_errhandler) X(Session_finalize)    \
    X(Session_get_errhandler) X(Session_get_info) X(Session_get_nth_pset) X(Session_get_num_psets)                     \
    X(Session_get_pset_info) X(Session_init) X(Session_set_errhandler) X(Type_contiguous_c) X(Type_create_darray_c)    \
    X(Type_create_hindexed_block_c) X(Type_create_hindexed_c) X(Type_create_hvector_c) X(Type_create_indexed_block_c)  \
    X(Type_create_resized_c) X(Type_create_struct_c) X(Type_create_subarray_c) X(Type_extent) X(Type_get_contents_c)   \
    X(Type_get_envelope_c) X(Type_get_extent_c) X(Type_get_true_extent_c) X(Type_hindexed) X(Type_hvector)             \
    X(Type_indexed_c) X(Type_lb) X(Type_size_c) X(Type_struct) X(Type_ub) X(Type_vector_c) X(Unpack_c)                 \
    X(Unpack_external_c) X(Win_allocate_c) X(Win_allocate_shared_c) X(Win_create_c) X(Win_shared_query_c)

#if TELEM_MPI_VERSION >= 40
#define LOOKUPS(X) LOOKUPS_3(X) LOOKUPS_4(X)
#else
#define LOOKUPS(X) LOOKUPS_3(X)
#endif
