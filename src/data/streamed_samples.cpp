#include "data/streamed_samples.h"

#include <algorithm>
#include <bit>

#include "base/philox.h"

namespace millrace::data {
namespace {

constexpr std::size_t kLeastRuns = 4096, kMostInRun = 64;  // of neighbours that stay together, where there are so many
// Runs must not come in an order that is that of samples inside a window.
constexpr std::uint64_t kRunKey = 0x72756e73;

/// The samples as they lie, cut into runs that come in a random order.
std::vector<std::int32_t> mixed(std::vector<std::int32_t> samples, std::uint64_t seed) {
    std::ranges::sort(samples);
    const std::size_t run = std::clamp<std::size_t>(samples.size() / kLeastRuns, 1, kMostInRun);
    const base::Shuffle order =
        base::make_shuffle(seed ^ kRunKey, 0, static_cast<std::uint32_t>((samples.size() + run - 1) / run));
    std::vector<std::int32_t> all;
    for (std::uint32_t i = 0; i < order.n; ++i) {
        const std::size_t first = base::shuffled_index(order, i) * run;
        for (std::size_t at = first; at < std::min(first + run, samples.size()); ++at) all.push_back(samples[at]);
    }
    return all;
}

/// Reads the inputs of order[first], order[first + 1], ...: neighbours at once.
base::Status read_inputs(const SampleSet& set, const std::vector<std::int32_t>& order, std::size_t first,
                         std::span<std::byte> inputs) {
    const std::size_t size = set.input_bytes(), end = first + inputs.size() / size;
    for (std::size_t next = first; first < end; first = next) {
        while (++next < end && order[next] == order[next - 1] + 1) continue;
        MILLRACE_TRY(set.read(order[first], inputs.first((next - first) * size)));
        inputs = inputs.subspan((next - first) * size);
    }
    return base::ok();
}

}  // namespace

StreamedSet streamed(const std::shared_ptr<const SampleSet>& set, const Augmentation& augmentation, std::uint64_t seed) {
    StreamedSet made{.name = set->name,
                     .unit = set->unit,
                     .fields = fields_of(*set),
                     .input_bytes = set->input_bytes(),
                     .row_alignment = 8,  // a GPU takes eight pixels at a time
                     .classes = static_cast<std::size_t>(set->preparation.classes),
                     .preparation = encode(set->preparation),
                     .notes = set->notes};
    for (const Part part : kAllParts) {
        const auto order = std::make_shared<const std::vector<std::int32_t>>(part == Part::train ? mixed(set->part(part), seed)
                                                                                                 : set->part(part));
        StreamedSet::Rows& rows = made.parts[index_of(part)];
        rows.count = order->size();
        rows.inputs = [set, order](std::uint32_t first, std::span<std::byte> inputs) {
            return read_inputs(*set, *order, first, inputs);
        };
        rows.answer = [set, order](std::uint32_t row) {
            const auto sample = static_cast<std::size_t>((*order)[row]);
            return set->classifies() ? static_cast<std::uint32_t>(set->labels[sample])
                                     : std::bit_cast<std::uint32_t>(set->targets[sample]);
        };
    }
    made.gather = [set, augmentation](tape::Builder& builder, Part part, const StreamedTables& from, std::int32_t rows,
                                      std::span<const Wanted> wanted) {
        SampleTables tables{from.inputs_of(set->has_images() ? tensor::DType::u8 : tensor::DType::f32, set->width),
                            from.answers,
                            {},
                            from.window};
        if (!set->classifies()) tables.answers.dtype = tensor::DType::f32;
        return append_gather(builder, *set, augmentation, part, tables, rows, wanted);
    };
    return made;
}

}  // namespace millrace::data
