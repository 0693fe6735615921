// Bookkeeping of the step: schedule, counters, metrics ring, fills, copies, and the gathering of images.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

__device__ double schedule_factor(const StepBeginParams& p, std::uint32_t s) {
    if (s <= p.warmup_steps) return static_cast<double>(s) / p.warmup_steps;
    const double n = p.total_steps > p.warmup_steps ? p.total_steps - p.warmup_steps : 1;
    const double t = fmin(static_cast<double>(s - p.warmup_steps), n);
    switch (p.schedule) {
        case ScheduleKind::constant: return 1;
        case ScheduleKind::cosine: return p.floor + (1 - p.floor) * (1 + cospi(t / n)) / 2;
        case ScheduleKind::step: return pow(p.gamma, static_cast<double>((s - 1) / p.interval));
    }
    return 1;
}

__global__ void step_begin_kernel(States states, int members, StepBeginParams p) {
    begin_kernel();
    // Three threads a member: each of the three double-precision powers takes longer than all the rest.
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= members) return;
    MemberState& m = states[k];
    if (threadIdx.y == 1) {
        m.bias1 = static_cast<float>(1 - pow(static_cast<double>(m.beta1), static_cast<double>(m.applied + 1)));
        return;
    }
    if (threadIdx.y == 2) {
        m.bias2 = static_cast<float>(1 - pow(static_cast<double>(m.beta2), static_cast<double>(m.applied + 1)));
        return;
    }
    m.step += 1;
    m.micro = 0;
    m.nonfinite = 0;
    m.rows = m.correct = 0;
    m.loss = m.penalty = 0;
    m.lr = static_cast<float>(m.base_lr * schedule_factor(p, m.step));
}

__global__ void micro_end_kernel(States states, int members, MicroEndParams p) {
    begin_kernel();
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= members) return;
    MemberState& m = states[k];
    if (!p.training) {
        m.eval_position += p.rows;
        return;
    }
    m.micro += 1;
    m.position += p.rows;
    if (m.position >= p.samples) {
        m.position = 0;
        m.epoch += 1;
    }
}

__global__ void metrics_push_kernel(States states, int members, std::uint64_t* counter, MetricsRow* ring,
                                    std::uint32_t capacity) {
    begin_kernel();
    const std::uint64_t sequence = *counter + 1;
    __syncthreads();
    MetricsRow* row = ring + (sequence % capacity) * members;
    for (int k = threadIdx.x; k < members; k += blockDim.x) write_metrics(row + k, states[k], sequence);
    if (threadIdx.x == 0) *counter = sequence;
}

template <class T>
__global__ void fill_kernel(Mat<T> out, int groups, int rows, int cols, float value) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < std::int64_t{rows} * cols;
         i += std::int64_t{gridDim.x} * blockDim.x)
        store(out.row(k, g, i / cols) + i % cols, value);
}

template <class In, class Out>
__global__ void copy_kernel(Mat<In> in, Mat<Out> out, int groups, int rows, int cols) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < std::int64_t{rows} * cols;
         i += std::int64_t{gridDim.x} * blockDim.x) {
        const In* from = in.row(k, g, i / cols) + i % cols;
        Out* to = out.row(k, g, i / cols) + i % cols;
        if constexpr (std::is_same_v<In, bf16> || std::is_same_v<Out, bf16>)
            store(to, static_cast<float>(load(from)));
        else
            *to = static_cast<Out>(*from);
    }
}

struct Affine {
    float cosine, sine, dx, dy, scale;
    bool flip;
};

__device__ Affine draw_affine(const GatherImagesParams& p, const MemberState& m, int row) {
    float u[5];
    for (int j = 0; j < 5; ++j)
        u[j] = base::uniform01(base::random_bits(m.seed, m.step, m.micro, p.op_number, static_cast<std::uint64_t>(row) * 8 + j));
    const float angle = (2 * u[0] - 1) * p.rotate * 0.017453292519943295f;
    Affine a;
    a.cosine = cosf(angle);
    a.sine = sinf(angle);
    a.dx = floorf((2 * u[1] - 1) * p.shift * static_cast<float>(p.side) + 0.5f);
    a.dy = floorf((2 * u[2] - 1) * p.shift * static_cast<float>(p.side) + 0.5f);
    a.scale = 1 + (2 * u[3] - 1) * p.scale;
    a.flip = u[4] < p.flip;
    return a;
}

__device__ float affine_pixel(const Affine& a, const std::uint8_t* image, int pixel, int side) {
    const float centre = 0.5f * static_cast<float>(side - 1);
    int u = pixel % side;
    const int v = pixel / side;
    if (a.flip) u = side - 1 - u;
    const float x = (static_cast<float>(u) - centre - a.dx) / a.scale, y = (static_cast<float>(v) - centre - a.dy) / a.scale;
    const int column = static_cast<int>(floorf(a.cosine * x + a.sine * y + centre + 0.5f));
    const int line = static_cast<int>(floorf(a.cosine * y - a.sine * x + centre + 0.5f));
    if (column < 0 || column >= side || line < 0 || line >= side) return 0;
    return image[line * side + column];
}

template <class T>
__global__ void gather_kernel(const std::uint8_t* images, std::int64_t image_stride, const std::uint8_t* labels,
                              std::int64_t label_stride, const std::int32_t* subset, States states, Mat<T> x, Mat<std::int32_t> y,
                              int pixels, GatherImagesParams p) {
    begin_kernel();
    const int b = blockIdx.x, k = blockIdx.y;
    __shared__ std::int32_t chosen;
    __shared__ Affine affine;
    if (threadIdx.x == 0) {
        const MemberState& m = states[k];
        const std::uint32_t q = (p.training ? m.position : m.eval_position) + b;
        chosen = q < p.samples ? subset[p.shuffle ? base::shuffled_index(m.seed, m.epoch, q, p.samples) : q] : 0;
        if (p.augment) affine = draw_affine(p, m, b);
        *y.row(k, 0, b) = labels[chosen * label_stride];
    }
    __syncthreads();
    const std::uint8_t* image = images + chosen * image_stride;
    T* out = x.row(k, 0, b);
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        const float value = p.augment ? affine_pixel(affine, image, i, static_cast<int>(p.side)) : static_cast<float>(image[i]);
        store(out + i, (value / 255 - p.mean) / p.std);
    }
}

template <class From, class T>
__global__ void gather_rows_kernel(const From* table, std::int64_t stride, const std::int32_t* subset, States states, Mat<T> out,
                                   int cols, GatherRowsParams p) {
    begin_kernel();
    const int b = blockIdx.x, k = blockIdx.y;
    __shared__ std::int32_t chosen;
    if (threadIdx.x == 0) {
        const MemberState& m = states[k];
        const std::uint32_t q = (p.training ? m.position : m.eval_position) + b;
        chosen = q < p.samples ? subset[p.shuffle ? base::shuffled_index(m.seed, m.epoch, q, p.samples) : q] : 0;
    }
    __syncthreads();
    const From* from = table + chosen * stride;
    T* to = out.row(k, 0, b);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        if constexpr (std::is_same_v<From, T>)
            to[i] = from[i];
        else
            store(to + i, from[i]);
}

}  // namespace

bool dependent_launches() {
    static const bool able = [] {
        cudaFuncAttributes compiled{};
        if (cudaFuncGetAttributes(&compiled, step_begin_kernel) != cudaSuccess) return false;
        return std::min(compiled.ptxVersion, compiled.binaryVersion) >= 90;
    }();
    return able;
}

KernelResult make_step_begin(Context& c, const Bound& b) {
    const Operand& s = b[step_begin::state];
    return make_kernel([stream = c.stream, s, p = b.params<StepBeginParams>()] {
        launch(step_begin_kernel, dim3(blocks_for(s.k, 32)), dim3(32, 3), 0, stream, states(s), s.k, p);
    });
}

KernelResult make_micro_end(Context& c, const Bound& b) {
    const Operand& s = b[micro_end::state];
    return make_kernel([stream = c.stream, s, p = b.params<MicroEndParams>()] {
        launch(micro_end_kernel, dim3(blocks_for(s.k, 64)), dim3(64), 0, stream, states(s), s.k, p);
    });
}

KernelResult make_metrics_push(Context& c, const Bound& b) {
    const Operand &s = b[metrics_push::state], &counter = b[metrics_push::counter], &ring = b[metrics_push::ring];
    return make_kernel([stream = c.stream, s, counter, ring, p = b.params<MetricsPushParams>()] {
        launch(metrics_push_kernel, dim3(1), dim3(64), 0, stream, states(s), s.k, static_cast<std::uint64_t*>(counter.data),
               static_cast<MetricsRow*>(ring.data), p.capacity);
    });
}

namespace {
KernelResult make_constant(Context& c, const Operand& o, float value) {
    if (o.count() == 0) return make_kernel([] {});
    auto make = [&]<class T>(T) {
        return make_kernel([stream = c.stream, o, value] {
            launch(fill_kernel<T>, element_grid(o), dim3(256), 0, stream, mat<T>(o), o.g, o.rows, o.cols, value);
        });
    };
    if (o.dtype == DType::f32) return make(float{});
    if (o.dtype == DType::bf16) return make(bf16{});
    if (o.dtype == DType::i32) return make(std::int32_t{});
    return base::Error{std::string("fill on cuda takes f32, bf16 and i32, not ") + name_of(o.dtype)};
}
}  // namespace

KernelResult make_fill(Context& c, const Bound& b) {
    return make_constant(c, b[fill::out], static_cast<float>(b.params<FillParams>().value));
}
KernelResult make_zeros(Context& c, const Operand& out) { return make_constant(c, out, 0); }

KernelResult make_copy(Context& c, const Bound& b) {
    const Operand &in = b[copy::in], &out = b[copy::out];
    if (out.count() == 0) return make_kernel([] {});
    auto make = [&]<class In, class Out>(In, Out) {
        return make_kernel([stream = c.stream, in, out] {
            launch(copy_kernel<In, Out>, element_grid(out), dim3(256), 0, stream, mat<In>(in), mat<Out>(out), out.g, out.rows,
                   out.cols);
        });
    };
    auto from = [&]<class In>(In a) -> KernelResult {
        if (out.dtype == DType::f32) return make(a, float{});
        if (out.dtype == DType::bf16) return make(a, bf16{});
        if (out.dtype == DType::i32) return make(a, std::int32_t{});
        if (out.dtype == DType::f64) return make(a, double{});
        return base::Error{std::string("copy on cuda cannot write ") + name_of(out.dtype)};
    };
    if (in.dtype == DType::f32) return from(float{});
    if (in.dtype == DType::bf16) return from(bf16{});
    if (in.dtype == DType::i32) return from(std::int32_t{});
    if (in.dtype == DType::f64) return from(double{});
    return base::Error{std::string("copy on cuda cannot read ") + name_of(in.dtype)};
}

KernelResult make_gather_images(Context& c, const Bound& b) {
    const Operand &images = b[gather_images::images], &labels = b[gather_images::labels], &subset = b[gather_images::subset];
    const Operand &s = b[gather_images::state], &x = b[gather_images::x], &y = b[gather_images::y];
    const auto& p = b.params<GatherImagesParams>();
    if (x.count() == 0) return make_kernel([] {});
    auto make = [&]<class T>(T) {
        return make_kernel([stream = c.stream, images, labels, subset, s, x, y, p] {
            launch(gather_kernel<T>, dim3(static_cast<unsigned>(x.rows), static_cast<unsigned>(x.k)), dim3(128), 0, stream,
                   static_cast<const std::uint8_t*>(images.data), images.stride_row,
                   static_cast<const std::uint8_t*>(labels.data), labels.stride_row,
                   static_cast<const std::int32_t*>(subset.data), states(s), mat<T>(x), mat<std::int32_t>(y), x.cols, p);
        });
    };
    return x.dtype == DType::bf16 ? make(bf16{}) : make(float{});
}

KernelResult make_gather_rows(Context& c, const Bound& b) {
    const Operand &table = b[gather_rows::table], &subset = b[gather_rows::subset], &s = b[gather_rows::state];
    const Operand& out = b[gather_rows::out];
    const auto& p = b.params<GatherRowsParams>();
    if (out.count() == 0) return make_kernel([] {});
    auto make = [&]<class From, class T>(From, T) {
        return make_kernel([stream = c.stream, table, subset, s, out, p] {
            launch(gather_rows_kernel<From, T>, dim3(static_cast<unsigned>(out.rows), static_cast<unsigned>(out.k)), dim3(128), 0,
                   stream, static_cast<const From*>(table.data), table.stride_row, static_cast<const std::int32_t*>(subset.data),
                   states(s), mat<T>(out), out.cols, p);
        });
    };
    if (out.dtype == DType::i32) return make(std::int32_t{}, std::int32_t{});
    return out.dtype == DType::bf16 ? make(float{}, bf16{}) : make(float{}, float{});
}

}  // namespace millrace::ops::cuda
