#pragma once
// Ways to do the same records. The cheapest by prediction is taken, or the one that BackendOptions::forms names. What was chosen
// once for records of a layer and shape is taken again, also by a run that goes on (Backend::forms()).

#include <algorithm>
#include <span>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

struct Form {
    const char* name;
    /// Why the records cannot be done this way; null: they can.
    const char* (*refuses)(const Context&, std::span<const Bound>);
    double (*predict)(const Context&, std::span<const Bound>);  ///< microseconds
    KernelResult (*make)(Context&, std::span<const Bound>);
};

/// For a form of one record: kOf(context, record).
template <auto kOf>
constexpr auto one = [](auto& c, std::span<const Bound> records) { return kOf(c, records.front()); };
/// For a form that does all records.
inline const char* refuses_nothing(const Context&, std::span<const Bound>) { return nullptr; }

/// The form that is taken, null: none can be. `subject`: what BackendOptions::forms calls the choice, "dense_forward".
const Form* choose_form(const Context&, const char* subject, std::span<const Form>, std::span<const Bound>);
/// Whether BackendOptions::forms names it.
bool is_asked_for(const Context&, const char* subject, const Form&);
/// A choice between yes and no that is remembered as forms are: `predicted`, unless it was another before or is asked for.
bool decide(const Context&, const char* subject, std::span<const Bound>, bool predicted);
/// Backend::forms().
std::vector<std::string> chosen_forms(const Context&);
/// Its kernel, which knows its form.
KernelResult make_form(Context&, const char* subject, std::span<const Form>, std::span<const Bound>);

/// Predicted microseconds, from figures of an H200 (docs/performance/forms.md).
/// Of a product of the library: neither its own launch nor the next one begins early. Blocks have 128 x 128 outputs; where these
/// are few, about five share one, more of them where each still sums 8,192 elements. Strict f32 has no tensor cores there, and
/// small blocks.
inline double plain_product_time(const Context& c, const tensor::Operand& out, double summed, tensor::DType type) {
    constexpr double kLaunch = 4, kBytes = 3.6e6;
    const bool strict = type == tensor::DType::f32 && !c.tf32;
    const double petaflops = strict ? 0.035 : type == tensor::DType::f32 ? 0.3 : 0.67;
    const double splits = std::max(strict ? 60.0 : 5.0, summed / 8192);
    const double matrices = 1.0 * out.k * out.g, size = static_cast<double>(tensor::size_of(type)),
                 launches = library_launches(out);
    const double blocks = matrices * ((out.rows + 127) / 128) * ((out.cols + 127) / 128);
    const double used = std::min(1.0, splits * blocks / launches / c.multiprocessors);
    const double multiply = 2 * matrices * out.rows * out.cols * summed / 1e9 / petaflops / used;
    const double move = matrices * size * ((1.0 * out.rows + out.cols) * summed + 1.0 * out.rows * out.cols) / kBytes;
    return kLaunch * launches + std::max(multiply, move);
}
/// Of a pass over memory.
inline double pass_time(double bytes) { return 2.0 + bytes / 3.6e6; }
/// As six products of bf16 (product_kernels.cu), which a pass prepares: 4 bytes read and 12 written of each element.
inline double parts_product_time(const Context& c, const tensor::Operand& out, double summed) {
    const double elements = 1.0 * out.k * out.g * (1.0 * out.rows + out.cols) * summed;
    return pass_time(16 * elements) + plain_product_time(c, out, 6 * summed, tensor::DType::bf16);
}
inline bool can_take_parts(const Context& c) { return !c.tf32 && !c.deterministic && dependent_launches(); }
/// The faster of the library's ways.
inline double library_product_time(const Context& c, const tensor::Operand& out, double summed, tensor::DType type) {
    const double plain = plain_product_time(c, out, summed, type);
    return type == tensor::DType::f32 && can_take_parts(c) ? std::min(plain, parts_product_time(c, out, summed)) : plain;
}
/// Of one that also joins sums over rows.
inline double statistics_time(double bytes) { return 3.5 + bytes / 3.6e6; }

}  // namespace millrace::ops::cuda
