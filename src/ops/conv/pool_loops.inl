// Pooling and relu of one window over all channels. Included by cpu/kernels.simd.cpp inside namespace millrace::ops::cpu.

namespace {

constexpr int kPoolChannels = 16;  // channels at a time: the loops below have a length that the compiler knows

/// N channels, N <= kPoolChannels.
template <int N>
inline void largest_of(const PoolWindow& window, const float* u, const float* bias, float* y, std::uint8_t* chosen) {
    float best[N];
    std::int32_t place[N];
    for (int c = 0; c < N; ++c) {
        best[c] = u[c];
        place[c] = 0;
    }
    for (int i = 0, number = 0; i < window.height; ++i)
        for (int j = 0; j < window.width; ++j, ++number) {
            const float* at = u + i * window.row_stride + j * window.stride;
            for (int c = 0; c < N; ++c) {
                const bool larger = at[c] > best[c] || at[c] != at[c];
                best[c] = larger ? at[c] : best[c];
                place[c] = larger ? number : place[c];
            }
        }
    for (int c = 0; c < N; ++c) {
        if (bias != nullptr) best[c] += bias[c];
        if (window.relu && best[c] <= 0) {
            best[c] = 0;
            place[c] = 255;
        }
    }
    for (int c = 0; c < N; ++c) y[c] = best[c];
    if (chosen == nullptr) return;
    for (int c = 0; c < N; ++c) chosen[c] = static_cast<std::uint8_t>(place[c]);
}

void pool_forward(const PoolWindow& window, const float* u, const float* bias, float* y, std::uint8_t* chosen) {
    const auto part = [&](auto largest, int c) {
        largest(window, u + c, bias != nullptr ? bias + c : nullptr, y + c, chosen != nullptr ? chosen + c : nullptr);
    };
    int c = 0;
    for (; c + kPoolChannels <= window.channels; c += kPoolChannels) part(largest_of<kPoolChannels>, c);
    for (; c < window.channels; ++c) part(largest_of<1>, c);
}

void pool_backward(const PoolWindow& window, const float* dy, const std::uint8_t* chosen, float* dz) {
    for (int i = 0, number = 0; i < window.height; ++i)
        for (int j = 0; j < window.width; ++j, ++number) {
            float* __restrict at = dz + i * window.row_stride + j * window.stride;
            for (int c = 0; c < window.channels; ++c) at[c] = chosen[c] == number ? dy[c] : 0.0f;
        }
}

}  // namespace
