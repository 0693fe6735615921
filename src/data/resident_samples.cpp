#include "data/resident_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/philox.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

constexpr std::size_t kLeastRuns = 4096, kMostInRun = 64;  // of neighbours that stay together, where there are so many
constexpr std::uint64_t kRunKey = 0x72756e73;              // for another order than that of samples inside a window

Fields fields_of(const SampleSet& set) {
    const Preparation& prepared = set.preparation;
    Field input{prepared.shape.size() > 0 ? "image" : "vector", Field::Kind::real, set.width};
    input.shape = prepared.shape;
    Field answer{"label", Field::Kind::integer, 1, prepared.classes, {}, prepared.class_names};
    if (prepared.target) {
        answer = {"target", Field::Kind::real, 1};
        answer.scaling = std::make_shared<const Scaling>(
            Scaling{{static_cast<float>(prepared.target->mean)}, {static_cast<float>(prepared.target->deviation)}});
        answer.names = {prepared.target->name};
    } else {
        auto classes = std::make_shared<Classes>();
        classes->names = prepared.class_names;
        classes->counts = set.class_counts(Part::train);
        answer.classes = std::move(classes);
    }
    return {std::move(input), std::move(answer)};
}

base::Status check_samples(const SampleSet& set, const Augmentation& augmentation) {
    if (set.count == 0) return base::Error{fmt::format("the set has no {}", set.unit)};
    if (set.part(Part::train).empty())
        return base::Error{fmt::format("all {} are held out for validation or test; smaller shares would be right", set.unit)};
    if (augmentation.enabled && !set.has_images())
        return base::Error{fmt::format("data.augment = true: {} cannot be augmented, only images of bytes can", set.unit)};
    return base::ok();
}

/// Appends the records that fill both fields, whichever are wanted, from tables of all samples, in the order of the part, or from
/// those of windows. Gives the views in the order of `wanted`.
std::vector<tensor::View> append_gather(tape::Builder& builder, const SampleSet& set, const Augmentation& augmentation, Part part,
                                        const StreamedTables& from, const tensor::View& order, std::int32_t rows,
                                        std::span<const Wanted> wanted) {
    const Gathered places = places_of(builder, fields_of(set), rows, wanted);
    const auto samples = static_cast<std::uint32_t>(set.part(part).size());
    const bool training = builder.training(), images = set.has_images(), together = images && set.classifies();
    const tensor::View state = builder.store().state();
    if (images) {
        const Preparation& prepared = set.preparation;
        ops::GatherImagesParams params;
        params.samples = samples;
        params.op_number = builder.next_op_number();
        params.training = params.shuffle = training;
        params.augment = training && augmentation.enabled;
        for (std::size_t channel = 0; channel < prepared.mean.size(); ++channel) {
            params.mean[channel] = prepared.mean[channel];
            params.std[channel] = prepared.deviation[channel];
        }
        params.height = static_cast<std::uint32_t>(prepared.shape.height);
        params.width = static_cast<std::uint32_t>(prepared.shape.width);
        params.channels = static_cast<std::uint32_t>(prepared.shape.channels);
        params.rotate = augmentation.rotate;
        params.shift = augmentation.shift;
        params.scale = augmentation.scale;
        params.flip = augmentation.flip;
        params.window = from.window;
        const tensor::View none, labels = together ? from.answers : none, y = together ? places.fields[1] : none;
        builder.append(
            tape::record_of(&ops::gather_images::kDef, params, "data", {from.inputs, labels, order, state, places.fields[0], y}));
    }
    const ops::GatherRowsParams params{samples, training, training, from.window};
    const auto append_rows = [&](const tensor::View& table, const tensor::View& out) {
        builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data", {table, order, state, out}));
    };
    if (!images) append_rows(from.inputs, places.fields[0]);
    if (!together) append_rows(from.answers, places.fields[1]);
    return places.wanted;
}

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

ResidentSamples::ResidentSamples(std::shared_ptr<const SampleSet> set, Augmentation augmentation)
    : set_(std::move(set)), augmentation_(augmentation) {
    fields_ = fields_of(*set_);
    order_ = set_->parts;
}

base::Status ResidentSamples::declare_tables(tape::Store& store) {
    MILLRACE_TRY(check_samples(*set_, augmentation_));
    const auto stat = tape::stat_of(store.options().precision);
    tables_[0] = store.add_data(set_->has_images() ? "images" : fields_[0].name, set_->has_images() ? tensor::DType::u8 : stat,
                                set_->count, set_->width);
    if (set_->classifies()) {
        tables_[1] = add_table(store, "labels", tensor::DType::i32, set_->count, 1, set_->labels);
    } else {
        tables_[1] = store.add_data("targets", stat, set_->count, 1);
        on_upload([this](tape::Store& to) { to.write_stat(tables_[1], set_->targets); });
    }
    for (const Part part : kAllParts) subset_[index_of(part)] = add_order(store, part);
    return base::ok();
}

base::Status ResidentSamples::upload(tape::Store& store) {
    MILLRACE_TRY(set_->for_inputs([&](std::int32_t first, std::span<const std::byte> inputs) {
        const auto rows = static_cast<std::int32_t>(inputs.size() / set_->input_bytes());
        const tensor::View to = tables_[0].row_window(first, rows);
        if (set_->has_images()) return store.write(to, inputs.data(), inputs.size());
        const auto* numbers = reinterpret_cast<const float*>(inputs.data());
        store.write_stat(to, std::vector<float>(numbers, numbers + inputs.size() / sizeof(float)));
    }));
    return ResidentSource::upload(store);
}

void ResidentSamples::write_inputs(tape::Store& store, const InputRows& rows) const {
    if (set_->has_images())
        store.write(tables_[0], rows.bytes);
    else
        store.write_stat(tables_[0], rows.numbers);
}

std::unique_ptr<ResidentSamples> placeholders(const Preparation& prepared, std::int32_t count) {
    auto set = std::make_shared<SampleSet>();
    set->preparation = prepared;
    set->count = count;
    const std::size_t rows = static_cast<std::size_t>(count), width = prepared.width();
    set->width = static_cast<std::int32_t>(width);
    if (prepared.shape.size() > 0)
        set->bytes.resize(rows * width);
    else
        set->numbers.resize(rows * width);
    set->labels.resize(rows);
    set->targets.resize(rows);
    set->part(Part::train) = {0};  // a set without it is refused
    set->part(Part::test).resize(rows);
    std::iota(set->part(Part::test).begin(), set->part(Part::test).end(), 0);
    return std::make_unique<ResidentSamples>(std::move(set));
}

std::vector<tensor::View> ResidentSamples::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                  std::span<const Wanted> fields) {
    return append_gather(builder, *set_, augmentation_, part, {tables_[0], tables_[1]}, subset_[index_of(part)], rows, fields);
}

base::Result<StreamedSet> streamed(const std::shared_ptr<const SampleSet>& set, const Augmentation& augmentation,
                                   std::uint64_t seed) {
    MILLRACE_TRY(check_samples(*set, augmentation));
    StreamedSet made{.name = set->name,
                     .unit = set->unit,
                     .fields = fields_of(*set),
                     .input = set->has_images() ? tensor::DType::u8 : tensor::DType::f32,
                     .answer = set->classifies() ? tensor::DType::i32 : tensor::DType::f32,
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
        return append_gather(builder, *set, augmentation, part, from, {}, rows, wanted);
    };
    return made;
}

}  // namespace millrace::data
