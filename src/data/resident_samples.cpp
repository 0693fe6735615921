#include "data/resident_samples.h"

#include <fmt/format.h>

#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {

ResidentSamples::ResidentSamples(std::shared_ptr<const SampleSet> set, Augmentation augmentation)
    : set_(std::move(set)), augmentation_(augmentation) {
    const Preparation& prepared = set_->preparation;
    Field input{prepared.shape.size() > 0 ? "image" : "vector", Field::Kind::real, set_->width};
    input.shape = prepared.shape;
    Field answer{"label", Field::Kind::integer, 1, prepared.classes, {}, prepared.class_names};
    if (prepared.target) {
        answer = {"target", Field::Kind::real, 1};
        answer.scaling = std::make_shared<const Scaling>(
            Scaling{{static_cast<float>(prepared.target->mean)}, {static_cast<float>(prepared.target->deviation)}});
        answer.names = {prepared.target->name};
    }
    fields_ = {std::move(input), std::move(answer)};
    order_ = set_->parts;
}

base::Status ResidentSamples::declare_tables(tape::Store& store) {
    if (set_->count == 0) return base::Error{fmt::format("the set has no {}", set_->unit)};
    if (samples(Part::train) == 0)
        return base::Error{fmt::format("all {} are held out for validation or test; smaller shares would be right", set_->unit)};
    if (augmentation_.enabled && set_->bytes.empty())
        return base::Error{fmt::format("data.augment = true: {} cannot be augmented, only images of bytes can", set_->unit)};
    const auto stat = tape::stat_of(store.options().precision);
    const auto add_numbers = [&](const std::string& name, std::int32_t width, const std::vector<float>& values) {
        const tensor::View table = store.add_data(name, stat, set_->count, width);
        on_upload([table, &values](tape::Store& to) { to.write_stat(table, values); });
        return table;
    };
    if (set_->bytes.empty()) {
        tables_[0] = add_numbers(fields_[0].name, set_->width, set_->numbers);
    } else {
        tables_[0] = store.add_data("images", tensor::DType::u8, set_->count, set_->width);
        on_upload([this](tape::Store& to) { to.write(tables_[0], set_->bytes.data(), set_->bytes.size()); });
    }
    tables_[1] = set_->classifies() ? add_table(store, "labels", tensor::DType::i32, set_->count, 1, set_->labels)
                                    : add_numbers("targets", 1, set_->targets);
    for (const Part part : kAllParts) subset_[index_of(part)] = add_order(store, part);
    return base::ok();
}

void ResidentSamples::gather_images(tape::Builder& builder, Part part, const tensor::View& x, const tensor::View& y) const {
    const Preparation& prepared = set_->preparation;
    ops::GatherImagesParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.op_number = builder.next_op_number();
    params.training = params.shuffle = builder.training();
    params.augment = builder.training() && augmentation_.enabled;
    for (std::size_t channel = 0; channel < prepared.mean.size(); ++channel) {
        params.mean[channel] = prepared.mean[channel];
        params.std[channel] = prepared.deviation[channel];
    }
    params.height = static_cast<std::uint32_t>(prepared.shape.height);
    params.width = static_cast<std::uint32_t>(prepared.shape.width);
    params.channels = static_cast<std::uint32_t>(prepared.shape.channels);
    params.rotate = augmentation_.rotate;
    params.shift = augmentation_.shift;
    params.scale = augmentation_.scale;
    params.flip = augmentation_.flip;
    builder.append(tape::record_of(
        &ops::gather_images::kDef, params, "data",
        {tables_[0], y.present() ? tables_[1] : tensor::View{}, subset_[index_of(part)], builder.store().state(), x, y}));
}

std::vector<tensor::View> ResidentSamples::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                  std::span<const Wanted> fields) {
    const Gathered places = places_of(builder, fields_, rows, fields);
    const bool bytes = !set_->bytes.empty(), together = bytes && set_->classifies();
    if (bytes) gather_images(builder, part, places.fields[0], together ? places.fields[1] : tensor::View{});
    ops::GatherRowsParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.training = params.shuffle = builder.training();
    for (std::size_t field = bytes ? 1 : 0; field < fields_.size() && !together; ++field)
        builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data",
                                       {tables_[field], subset_[index_of(part)], builder.store().state(), places.fields[field]}));
    return places.wanted;
}

}  // namespace millrace::data
