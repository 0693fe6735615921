// Included by simd_*.cpp after the loops: names them in one table.

namespace {

SimdKernels simd_table(const char* id, const char* name) {
    return SimdKernels{.id = id,
                       .name = name,
                       .mr = kTileRows,
                       .nr = kTileColumns,
                       .tile_rows = tile_rows,
                       .tile_panels = tile_panels,
                       .pack_rows = pack_rows,
                       .pack_transposed = pack_transposed,
                       .transpose = transpose,
                       .column_sums = column_sums,
                       .column_squares = column_squares,
                       .column_pass = column_pass,
                       .column_backward = column_backward,
                       .column_norm_backward = column_norm_backward,
                       .add_rows = add_rows,
                       .scale_row = scale_row,
                       .layernorm_row = layernorm_row,
                       .layernorm_row_backward = layernorm_row_backward,
                       .layernorm_column_sums = layernorm_column_sums,
                       .squared_distance = squared_distance,
                       .dot = dot,
                       .add_difference = add_difference,
                       .gru_gates = gru_gates,
                       .gru_row_backward = gru_row_backward,
                       .neuron_forward = neuron_forward,
                       .neuron_backward = neuron_backward,
                       .largest = largest_at,
                       .exp_sum = exp_sum,
                       .attention_forward = attention_forward_head,
                       .attention_backward = attention_backward_head,
                       .adam = adam,
                       .sgd = sgd,
                       .sum_of_squares = sum_of_squares,
                       .pixels = pixels};
}

}  // namespace
