#include "data/resident_samples.h"

namespace millrace::data {

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

std::vector<tensor::View> ResidentSamples::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                  std::span<const Wanted> fields) {
    return append_gather(builder, *set_, augmentation_, part, {tables_[0], tables_[1], subset_[index_of(part)]}, rows, fields);
}

}  // namespace millrace::data
