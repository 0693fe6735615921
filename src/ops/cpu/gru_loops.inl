// Gates of the GRU. Included after elementary.inl.

namespace {

void gru_gates(const GruGates& pass) {
    const GruGates p = pass;  // a copy that no store can alias
    const int cols = p.cols;
    const float *b_ir = p.b_ih, *b_iz = p.b_ih + p.hidden, *b_in = p.b_ih + 2 * p.hidden;
    const float *b_hr = p.b_hh, *b_hz = p.b_hh + p.hidden, *b_hn = p.b_hh + 2 * p.hidden;
    for (int i = 0; i < p.rows; ++i) {
        const float* __restrict in = p.from_x + i * p.product_stride;
        const float* __restrict state = p.from_h + i * p.product_stride;
        const float* __restrict h = p.h + p.row[i] * p.h_stride;
        float* __restrict out = p.out + p.row[i] * p.out_stride;
        float r[kMaxColumns], z[kMaxColumns], n[kMaxColumns], hn[kMaxColumns];
        for (int c = 0; c < cols; ++c) r[c] = sigmoid_of((in[c] + b_ir[c]) + (state[c] + b_hr[c]));
        for (int c = 0; c < cols; ++c) z[c] = sigmoid_of((in[kMaxColumns + c] + b_iz[c]) + (state[kMaxColumns + c] + b_hz[c]));
        for (int c = 0; c < cols; ++c) {
            hn[c] = state[2 * kMaxColumns + c] + b_hn[c];
            n[c] = tanh_of((in[2 * kMaxColumns + c] + b_in[c]) + r[c] * hn[c]);
        }
        for (int c = 0; c < cols; ++c) out[c] = (1.0f - z[c]) * n[c] + z[c] * h[c];
        if (p.gates == nullptr) continue;
        float* __restrict gates = p.gates + p.row[i] * p.gates_stride;
        for (int c = 0; c < cols; ++c) gates[c] = r[c];
        for (int c = 0; c < cols; ++c) gates[p.hidden + c] = z[c];
        for (int c = 0; c < cols; ++c) gates[2 * p.hidden + c] = n[c];
        for (int c = 0; c < cols; ++c) gates[3 * p.hidden + c] = hn[c];
    }
}

}  // namespace
