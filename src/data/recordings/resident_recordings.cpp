#include "data/recordings/resident_recordings.h"

#include <fmt/format.h>

#include <limits>

#include "data/recordings/recording_set.h"
#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

StreamedSet::Rows rows_of(const std::shared_ptr<const RecordingSet>& set, Part part) {
    const auto windows = static_cast<std::uint32_t>(set->windows);
    StreamedSet::Rows rows{static_cast<std::uint64_t>(set->part(part).count) * windows};
    if (rows.count == 0) return rows;
    rows.together = set->file(part)->together() * windows;
    rows.inputs = [file = set->file(part), windows](std::uint32_t first, std::span<std::byte> inputs) {
        const std::span features(reinterpret_cast<std::uint16_t*>(inputs.data()), inputs.size() / sizeof(std::uint16_t));
        return file->read(first / windows, features.size() / file->values(), features);
    };
    rows.answer = [set, part, windows](std::uint32_t row) {
        return static_cast<std::uint32_t>(set->part(part).labels[row / windows]);
    };
    return rows;
}

ops::GatherFeaturesParams gather_params(tape::Builder& builder, std::int32_t samples, std::int32_t mask) {
    ops::GatherFeaturesParams params;
    params.samples = static_cast<std::uint32_t>(samples);
    params.op_number = builder.next_op_number();
    params.training = params.shuffle = builder.training();
    if (builder.training()) params.mask = static_cast<std::uint32_t>(mask);
    return params;
}

}  // namespace

ResidentRecordings::ResidentRecordings(std::shared_ptr<const RecordingSet> set, RecordingOptions options)
    : set_(std::move(set)), options_(options) {
    fields_ = fields_of(*set_);
    for (const Part part : kAllParts) {
        std::vector<std::int32_t>& order = order_[index_of(part)];
        const Recordings& recordings = set_->part(part);
        std::int64_t windows = 0;  // what an epoch takes; declare() refuses more than can be counted
        for (const std::int32_t label : recordings.labels)
            windows +=
                std::int64_t{set_->windows} * (part == Part::train && label == set_->classes.positive ? options_.oversample : 1);
        asked_[index_of(part)] = windows;
        if (windows > std::numeric_limits<std::int32_t>::max()) continue;
        const auto add = [&](bool all) {
            for (std::int32_t r = 0; r < recordings.count; ++r)
                if (all || recordings.labels[static_cast<std::size_t>(r)] == set_->classes.positive)
                    for (std::int32_t w = 0; w < set_->windows; ++w) order.push_back(r * set_->windows + w);
        };
        for (std::int32_t turn = 0; turn < (part == Part::train ? options_.oversample : 1); ++turn) add(turn == 0);
    }
}

base::Status ResidentRecordings::declare_tables(tape::Store& store) {
    for (const Part part : kAllParts)
        if (asked_[index_of(part)] > std::numeric_limits<std::int32_t>::max())
            return base::Error{fmt::format("the {} part has {} segments an epoch; at most 2^31 - 1 would be right", name_of(part),
                                           asked_[index_of(part)])};
    if (samples(Part::train) == 0) return base::Error{"the training part has no recordings"};
    for (const Part part : kAllParts) {
        const Recordings& recordings = set_->part(part);
        const auto add = [&](const char* what, tensor::DType type, std::int32_t rows, std::int32_t cols, const auto& values) {
            return add_table(store, fmt::format("{} {}", name_of(part), what), type, rows, cols, values);
        };
        resident_[index_of(part)] = {
            add("features", tensor::DType::f16, recordings.count * set_->windows, set_->width, recordings.features),
            add("labels", tensor::DType::i32, recordings.count, 1, recordings.labels), add_order(store, part)};
    }
    scaling_.declare(store, set_->width);
    on_upload([this](tape::Store& to) { scaling_.upload(to, *set_->scaling); });
    return base::ok();
}

void ResidentRecordings::write_features(tape::Store& store, Part part, const std::vector<std::uint16_t>& features) const {
    store.write(resident_[index_of(part)].features, features);
}

std::vector<tensor::View> ResidentRecordings::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                     std::span<const Wanted> fields) {
    ops::GatherFeaturesParams params = gather_params(builder, samples(part), options_.mask);
    params.rows_per_label = static_cast<std::uint32_t>(set_->windows);
    const Resident& from = resident_[index_of(part)];
    return append_gather(builder, params, {from.features, from.labels, scaling_.mean, scaling_.inverse, from.order}, rows,
                         fields);
}

StreamedSet streamed(const std::shared_ptr<const RecordingSet>& set, std::int32_t mask) {
    StreamedSet made{.name = set->name, .unit = "segments", .fields = fields_of(*set), .input = tensor::DType::f16};
    for (const Part part : kAllParts) made.parts[index_of(part)] = rows_of(set, part);
    const auto scaling = std::make_shared<ScalingViews>();
    made.declare = [set, scaling](tape::Store& store) { scaling->declare(store, set->width); };
    made.upload = [set, scaling](tape::Store& store) { scaling->upload(store, *set->scaling); };
    made.gather = [set, scaling, mask](tape::Builder& builder, Part part, const StreamedTables& from, std::int32_t rows,
                                       std::span<const Wanted> wanted) {
        ops::GatherFeaturesParams params = gather_params(builder, set->part(part).count * set->windows, mask);
        params.window = from.window;
        return append_gather(builder, params, {from.inputs, from.answers, scaling->mean, scaling->inverse, {}}, rows, wanted);
    };
    return made;
}

}  // namespace millrace::data
