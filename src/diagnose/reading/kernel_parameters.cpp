#include "diagnose/reading/kernel_parameters.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

namespace millrace::diagnose {
namespace {

using record::Argument;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// One parameter's bytes and which of its words are pointers.
struct Parameter {
    std::vector<std::byte> bytes;
    std::vector<std::uint32_t> pointers;  ///< where, ascending

    template <class Value>
    [[nodiscard]] Value at(std::size_t place) const {
        Value value{};
        if (place + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + place, sizeof value);
        return value;
    }
    [[nodiscard]] bool has_pointer(std::size_t place) const {
        return std::binary_search(pointers.begin(), pointers.end(), static_cast<std::uint32_t>(place));
    }
};

/// Absent when words are missing: then the recording has pointers alone.
std::optional<std::vector<Parameter>> parameters_of(std::span<const Argument> words) {
    std::vector<Parameter> all;
    bool complete = false;
    for (const Argument& word : words) {
        const std::uint32_t number = record::argument_parameter(word.index), width = record::argument_bytes(word.index);
        if (width < 1 || width > sizeof word.value || number > all.size() || number + 1 < all.size()) return std::nullopt;
        if (number == all.size()) all.emplace_back();
        Parameter& parameter = all.back();
        const bool pointer = (word.index & record::kNoPointer) == 0;
        complete = complete || !pointer;
        if (pointer) parameter.pointers.push_back(static_cast<std::uint32_t>(parameter.bytes.size()));
        const auto* bytes = reinterpret_cast<const std::byte*>(&word.value);
        parameter.bytes.insert(parameter.bytes.end(), bytes, bytes + width);
    }
    return complete ? std::optional(std::move(all)) : std::nullopt;
}

/// Collects what counts.
class Sum {
public:
    void bytes(const Parameter& parameter, std::size_t from, std::size_t to) {
        to = std::min(to, parameter.bytes.size());
        auto next = std::ranges::lower_bound(parameter.pointers, from);
        for (std::size_t at = from; at < to;) {
            while (next != parameter.pointers.end() && *next < at) ++next;
            if (to - at >= 8 && next != parameter.pointers.end() && *next == at) {
                given_.pointers.push_back(parameter.at<std::uint64_t>(at));
                at += 8;
            } else {
                add(static_cast<std::uint8_t>(parameter.bytes[at++]));
            }
        }
        add(0xff);
    }
    void all(const Parameter& parameter) { bytes(parameter, 0, parameter.bytes.size()); }
    [[nodiscard]] GivenParameters result() {
        given_.rest = hash_;
        return std::move(given_);
    }

private:
    void add(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 1099511628211u; }  // FNV-1a

    GivenParameters given_;
    std::uint64_t hash_ = 14695981039346656037u;
};

/// Where the bytes of a functor end that count: lambdas for host and device end in an address of the host's heap, which no kernel
/// can read.
std::size_t functor_end(const Parameter& parameter) {
    const std::size_t size = parameter.bytes.size();
    if (size < 8 || size % 8 != 0 || parameter.has_pointer(size - 8)) return size;
    const auto last = parameter.at<std::uint64_t>(size - 8);
    const bool heap = last % 16 == 0 && last >= (std::uint64_t{1} << 16) && last < (std::uint64_t{1} << 47);
    return heap ? size - 8 : size;
}

constexpr std::size_t kMostDimensions = 25;  // of the framework's tables

/// (count, functor, pointers...): the output is the first of the pointers behind the functor.
std::optional<GivenParameters> plain_elementwise(const std::vector<Parameter>& all) {
    if (all.size() < 3) return std::nullopt;
    Sum sum;
    for (std::size_t i = 2; i < all.size(); ++i) sum.all(all[i]);
    sum.bytes(all[1], 0, functor_end(all[1]));
    sum.all(all[0]);
    return sum.result();
}

/// (count, lambda): the lambda holds a table for offsets (number of dimensions; divisor, factor and shift for each; strides for
/// each and every operand), the operands' pointers and the functor.
std::optional<GivenParameters> strided_elementwise(const std::vector<Parameter>& all) {
    if (all.size() != 2) return std::nullopt;
    const Parameter& lambda = all[1];
    const auto dimensions = lambda.at<std::uint32_t>(0);
    if (dimensions > kMostDimensions) return std::nullopt;
    constexpr std::size_t kDivider = 12, kStrides = 4 + kMostDimensions * kDivider, kMostFunctor = 64;
    for (std::size_t operands = 1; operands <= 8; ++operands) {
        const std::size_t data = (kStrides + kMostDimensions * operands * 4 + 7) / 8 * 8, behind = data + operands * 8;
        if (lambda.bytes.size() < behind || lambda.bytes.size() > behind + kMostFunctor) continue;
        bool found = true;
        for (std::size_t i = 0; i < operands; ++i) found = found && lambda.has_pointer(data + i * 8);
        if (!found) continue;
        Sum sum;
        sum.bytes(lambda, data, functor_end(lambda));
        sum.bytes(lambda, 0, 4 + dimensions * kDivider);
        sum.bytes(lambda, kStrides, kStrides + dimensions * operands * 4);
        sum.all(all[0]);
        return sum.result();
    }
    return std::nullopt;
}

/// (result, source, ...): pointer, sizes, strides, number of dimensions.
std::optional<GivenParameters> triangle(const std::vector<Parameter>& all) {
    if (all.size() < 3) return std::nullopt;
    Sum sum;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i > 1) {
            sum.all(all[i]);
            continue;
        }
        const std::size_t width = all[i].bytes.size() >= 8 + 2 * kMostDimensions * 8 ? 8 : 4;
        const std::size_t strides = 8 + kMostDimensions * width, number = strides + kMostDimensions * width;
        const auto dimensions = all[i].at<std::uint32_t>(number);
        if (all[i].bytes.size() < number + 4 || dimensions > kMostDimensions || !all[i].has_pointer(0)) return std::nullopt;
        sum.bytes(all[i], 0, 8 + dimensions * width);
        sum.bytes(all[i], strides, strides + dimensions * width);
    }
    return sum.result();
}

/// (output, inputs, sizes and strides, dimension, ...): for each input a pointer, an offset, a length and more, as arrays of 128.
/// How many there are is not told, but each begins where the one before ends.
std::optional<GivenParameters> concatenation(const std::vector<Parameter>& all) {
    constexpr std::size_t kInputs = 128, kOffsets = kInputs * 8, kLengths = kOffsets + kInputs * 4;
    if (all.size() < 4 || all[1].bytes.size() < kLengths + kInputs * 4) return std::nullopt;
    const Parameter& inputs = all[1];
    Sum sum;
    sum.all(all[0]);
    std::uint64_t next = 0;
    std::size_t count = 0;
    for (; count < kInputs && inputs.has_pointer(count * 8); ++count) {
        const auto offset = inputs.at<std::uint32_t>(kOffsets + count * 4),
                   length = inputs.at<std::uint32_t>(kLengths + count * 4);
        if (offset != next || length == 0) break;
        next += length;
    }
    if (count == 0) return std::nullopt;
    sum.bytes(inputs, 0, count * 8);
    sum.bytes(inputs, kOffsets, kOffsets + count * 4);
    sum.bytes(inputs, kLengths, kLengths + count * 4);
    for (std::size_t i = 3; i < all.size(); ++i) sum.all(all[i]);
    return sum.result();
}

std::optional<GivenParameters> known_layout(std::string_view kernel, const std::vector<Parameter>& all) {
    if (has(kernel, "vectorized_elementwise_kernel") || has(kernel, "unrolled_elementwise_kernel") ||
        has(kernel, "elementwise_kernel_with_index"))
        return plain_elementwise(all);
    if (has(kernel, "18elementwise_kernelI") || has(kernel, "::elementwise_kernel<")) return strided_elementwise(all);
    if (has(kernel, "triu_tril_kernel")) return triangle(all);
    if (has(kernel, "CatArrayBatchedCopy")) return concatenation(all);
    return std::nullopt;
}

}  // namespace

GivenParameters given_parameters(std::string_view kernel, std::span<const Argument> arguments) {
    GivenParameters given;
    if (!arguments.empty() && arguments.back().value == 0) {
        given.rest = arguments.back().index;
        arguments = arguments.first(arguments.size() - 1);
    }
    if (const auto parameters = parameters_of(arguments))
        if (auto known = known_layout(kernel, *parameters)) return std::move(*known);
    for (const Argument& word : arguments)
        if ((word.index & record::kNoPointer) == 0 && word.value != 0) given.pointers.push_back(word.value);
    return given;
}

const Arguments* arguments_of(const Timeline& timeline, std::uint32_t process, std::uint32_t correlation) {
    const std::pair wanted(process, correlation);
    const auto key = [](const Arguments& arguments) { return std::pair(arguments.process, arguments.correlation); };
    const auto found = std::ranges::lower_bound(timeline.arguments, wanted, {}, key);
    return correlation != 0 && found != timeline.arguments.end() && key(*found) == wanted ? &*found : nullptr;
}

}  // namespace millrace::diagnose
