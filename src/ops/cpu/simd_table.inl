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
                       .gru_gates = gru_gates,
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
