#include "data/sample_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/resident_source.h"
#include "io/checksum.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // of inputs that are read at once

}  // namespace

std::vector<bool> SampleSet::is_in(Part which) const {
    std::vector<bool> there(static_cast<std::size_t>(count));
    for (const std::int32_t sample : part(which)) there[static_cast<std::size_t>(sample)] = true;
    return there;
}

base::Status SampleSet::read(std::int32_t first, std::span<std::byte> inputs) const {
    if (reader) return reader(first, inputs);
    const auto from = bytes.empty() ? std::as_bytes(std::span(numbers)) : std::as_bytes(std::span(bytes));
    std::ranges::copy(from.subspan(static_cast<std::size_t>(first) * input_bytes(), inputs.size()), inputs.begin());
    return base::ok();
}

base::Status SampleSet::for_inputs(const std::function<void(std::int32_t first, std::span<const std::byte> inputs)>& body) const {
    const auto most = static_cast<std::int32_t>(std::max<std::size_t>(1, kPieceBytes / std::max<std::size_t>(1, input_bytes())));
    std::vector<std::byte> piece;
    for (std::int32_t first = 0; first < count; first += most) {
        piece.resize(static_cast<std::size_t>(std::min(most, count - first)) * input_bytes());
        MILLRACE_TRY(read(first, piece));
        body(first, piece);
    }
    return base::ok();
}

base::Status measure_channels(SampleSet& set) {
    const auto channels = static_cast<std::size_t>(set.preparation.shape.channels), width = static_cast<std::size_t>(set.width);
    std::vector<std::array<std::uint64_t, 256>> histograms(channels);
    const std::vector<bool> trains = set.is_in(Part::train);
    MILLRACE_TRY(set.for_inputs([&](std::int32_t first, std::span<const std::byte> inputs) {
        for (std::size_t at = 0, sample = static_cast<std::size_t>(first); at < inputs.size(); at += width, ++sample)
            for (std::size_t i = 0; trains[sample] && i < width; i += channels)
                for (std::size_t c = 0; c < channels; ++c) ++histograms[c][static_cast<std::size_t>(inputs[at + i + c])];
    }));
    set.preparation.mean.clear();
    set.preparation.deviation.clear();
    for (const auto& histogram : histograms) {
        double count = 0, sum = 0, squares = 0;
        for (std::size_t level = 0; level < histogram.size(); ++level) {
            const auto times = static_cast<double>(histogram[level]), value = static_cast<double>(level) / 255;
            count += times, sum += times * value, squares += times * value * value;
        }
        const double mean = count > 0 ? sum / count : 0, variance = count > 0 ? squares / count - mean * mean : 0;
        set.preparation.mean.push_back(static_cast<float>(mean));
        // One level's share of rounding is no spread.
        set.preparation.deviation.push_back(variance > 1e-10 ? static_cast<float>(std::sqrt(variance)) : 1.0f);
    }
    return base::ok();
}

base::Status sum_up(SampleSet& set) {
    io::Checksum64 sum;
    MILLRACE_TRY(set.for_inputs([&](std::int32_t, std::span<const std::byte> inputs) { sum.update(inputs); }));
    sum.update(std::as_bytes(std::span(set.labels)));
    sum.update(std::as_bytes(std::span(set.targets)));
    set.checksum = sum.value();
    return base::ok();
}

void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values) {
    if (!set.preparation.target) {
        const std::vector<std::int32_t>& train = set.part(Part::train);
        double mean = 0, squares = 0;
        const auto count = static_cast<double>(std::max<std::size_t>(1, train.size()));
        for (const std::int32_t sample : train) mean += values[static_cast<std::size_t>(sample)] / count;
        for (const std::int32_t sample : train) {
            const double away = values[static_cast<std::size_t>(sample)] - mean;
            squares += away * away / count;
        }
        set.preparation.target = Target{name, mean, squares > 0 ? std::sqrt(squares) : 1.0};
    }
    const Target& target = *set.preparation.target;
    set.targets.clear();
    for (const double value : values) set.targets.push_back(static_cast<float>((value - target.mean) / target.deviation));
}

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

std::vector<tensor::View> append_gather(tape::Builder& builder, const SampleSet& set, const Augmentation& augmentation, Part part,
                                        const SampleTables& from, std::int32_t rows, std::span<const Wanted> wanted) {
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
        builder.append(tape::record_of(&ops::gather_images::kDef, params, "data",
                                       {from.inputs, labels, from.order, state, places.fields[0], y}));
    }
    const ops::GatherRowsParams params{samples, training, training, from.window};
    const auto append_rows = [&](const tensor::View& table, const tensor::View& out) {
        builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data", {table, from.order, state, out}));
    };
    if (!images) append_rows(from.inputs, places.fields[0]);
    if (!together) append_rows(from.answers, places.fields[1]);
    return places.wanted;
}

}  // namespace millrace::data
