// Causal attention over sequences of equal length against PyTorch's: one line per pass, then one per peer.
//   attention_bench SEQUENCES HEADS WIDTH POSITIONS [cuda|cpu|f32]    bf16 on cuda, f32 on cpu; f32: on cuda, without peers

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/philox.h"
#include "bench/peers.h"
#include "ops/attention/attention.h"
#include "tensor/element.h"

namespace {

using namespace millrace;

struct Shape {
    int sequences, heads, width, positions;
    [[nodiscard]] int rows() const { return sequences * positions; }
    [[nodiscard]] int cols() const { return heads * width; }
    /// Of one product over all positions that a position sees.
    [[nodiscard]] double flops() const { return double(cols()) * rows() * positions; }
};

/// The records of both passes, bound to memory of their own.
class Attention {
public:
    Attention(ops::Backend& backend, const Shape& shape) : backend_(backend), shape_(shape) {}

    base::Status build(tensor::DType real) {
        namespace f = ops::attention_forward;
        namespace b = ops::attention_backward;
        using tensor::DType;
        const int rows = shape_.rows(), cols = shape_.cols();
        MILLRACE_LET(qkv, random(real, rows, 3 * cols));
        MILLRACE_LET(dout, random(real, rows, cols));
        MILLRACE_LET(out, random(real, rows, cols));
        MILLRACE_LET(dqkv, random(real, rows, 3 * cols));
        MILLRACE_LET(logsumexp, random(DType::f32, rows, shape_.heads));
        MILLRACE_LET(delta, random(DType::f32, rows, shape_.heads));
        MILLRACE_LET(lengths, random(DType::i32, shape_.sequences, 1));
        const ops::AttentionParams params{shape_.heads, 0, true};
        records_[0].op = &f::kDef;
        records_[1].op = &b::kDef;
        for (int i = 0; i < 2; ++i) {
            records_[i].params = params;
            bound_[i].record = &records_[i];
        }
        bound_[0].operands = {qkv, lengths, logsumexp, out};
        bound_[1].operands = {dout, qkv, lengths, logsumexp, out, delta, dqkv};
        for (int i = 0; i < 2; ++i)
            for (std::size_t s = 0; s < bound_[i].operands.size(); ++s)
                if (const tensor::Operand& o = bound_[i].operands[s]; o.present())
                    records_[i].slots[s] = {0, o.dtype, o.k, o.g, o.rows, o.cols, 0, o.stride_k, o.stride_g, o.stride_row};
        MILLRACE_LET(kernels, backend_.prepare(bound_, {}));
        kernels_ = std::move(kernels);
        return base::ok();
    }

    /// Median milliseconds of kernels [begin, end), several times in one graph where the backend has graphs.
    base::Result<double> time(std::size_t begin, std::size_t end) {
        const int repeats = backend_.can_capture() ? 20 : 1, windows = 9;
        const auto enqueue = [&] {
            for (int i = 0; i < repeats; ++i)
                for (std::size_t k = begin; k < end; ++k) kernels_[k]->run();
        };
        enqueue();
        backend_.synchronize();
        MILLRACE_TRY(backend_.check());
        std::unique_ptr<ops::Replay> replay;
        if (backend_.can_capture()) {
            MILLRACE_LET(captured, backend_.capture(enqueue));
            replay = std::move(captured);
        }
        std::vector<double> times;
        for (int i = 0; i < windows; ++i) {
            const auto start = std::chrono::steady_clock::now();
            if (replay)
                replay->launch();
            else
                enqueue();
            backend_.synchronize();
            const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
            times.push_back(passed.count() / repeats);
        }
        std::sort(times.begin(), times.end());
        return times[windows / 2];
    }

private:
    /// Random numbers; whole sequences where integers are wanted.
    base::Result<tensor::Operand> random(tensor::DType type, int rows, int cols) {
        const std::size_t size = tensor::size_of(type), count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
        MILLRACE_LET(memory, backend_.allocate(count * size));
        std::vector<std::byte> values(count * size);
        for (std::size_t i = 0; i < count; ++i) {
            const double unit = base::random_bits(1, 0, 0, static_cast<std::uint32_t>(memory_.size()), i) * 0x1p-32;
            tensor::write_element(values.data() + i * size, type, type == tensor::DType::i32 ? shape_.positions : 2 * unit - 1);
        }
        backend_.upload(memory->data(), values.data(), values.size());
        memory_.push_back(std::move(memory));
        return tensor::Operand{memory_.back()->data(),    type, 1, 1, rows, cols, std::int64_t{rows} * cols,
                               std::int64_t{rows} * cols, cols};
    }

    ops::Backend& backend_;
    Shape shape_;
    std::vector<std::unique_ptr<ops::Memory>> memory_;
    ops::Record records_[2];
    ops::Bound bound_[2];
    std::vector<std::unique_ptr<ops::Kernel>> kernels_;
};

base::Status compare(const Shape& shape, ops::DeviceKind device, tensor::DType real) {
    MILLRACE_LET(backend, ops::make_backend(device, {}));
    Attention attention(*backend, shape);
    MILLRACE_TRY(attention.build(real));
    fmt::print("{} sequences x {} heads x {} columns, {} positions, causal, {} on {}\n", shape.sequences, shape.heads,
               shape.width, shape.positions, tensor::name_of(real), backend->description());
    struct Pass {
        const char* name;
        std::size_t begin, end;
        int products;
        double ms;
    };
    Pass passes[] = {{"forward", 0, 1, 2, 0}, {"backward", 1, 2, 5, 0}, {"both", 0, 2, 7, 0}};
    for (Pass& pass : passes) {
        MILLRACE_LET(ms, attention.time(pass.begin, pass.end));
        pass.ms = ms;
        fmt::print("  {:28} {:10.4f} ms {:8.4g} TFLOP/s\n", fmt::format("millrace {}", pass.name), ms,
                   pass.products * shape.flops() / ms * 1e-9);
    }
    if (device == ops::DeviceKind::cuda && real == tensor::DType::f32) return base::ok();  // the peers know bf16 there
    MILLRACE_LET(folder, bench::find_peers());
    std::vector<std::string> command{bench::peer_python(device), folder + "/attention.py", "--device", ops::name_of(device)};
    for (const int size : {shape.sequences, shape.heads, shape.width, shape.positions}) command.push_back(std::to_string(size));
    const bench::PeerTimes times = bench::run_peers(command);
    if (times.peers.empty()) fmt::print("  no peers: {}\n", times.reason);
    for (const bench::PeerTime& peer : times.peers) {
        if (!peer.error.empty()) {
            fmt::print("  {:28} {}\n", peer.name, peer.error);
            continue;
        }
        const auto pass =
            std::find_if(std::begin(passes), std::end(passes), [&](const Pass& p) { return peer.name.ends_with(p.name); });
        const double ratio = pass == std::end(passes) ? 0 : peer.ms / pass->ms;
        fmt::print("  {:28} {:10.4f} ms, {:.2f}x of millrace's time\n", peer.name, peer.ms, ratio);
    }
    return base::ok();
}

}  // namespace

int main(int argc, char** argv) {
    const auto size = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
    const Shape shape{size(1, 4), size(2, 16), size(3, 64), size(4, 4096)};
    const std::string where = argc > 5 ? argv[5] : "cuda";
    if (std::min({shape.sequences, shape.heads, shape.width, shape.positions}) < 1) {
        fmt::print(stderr, "attention_bench SEQUENCES HEADS WIDTH POSITIONS [cuda|cpu|f32]: sizes are positive numbers\n");
        return 2;
    }
    const auto status = compare(shape, where == "cpu" ? ops::DeviceKind::cpu : ops::DeviceKind::cuda,
                                where == "cuda" ? tensor::DType::bf16 : tensor::DType::f32);
    if (status.ok()) return 0;
    fmt::print(stderr, "attention_bench: {}\n", status.error().text());
    return status.error().exit_status;
}
