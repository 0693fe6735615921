#pragma once
// A source whose samples live in device memory, as tables that programs gather from.

#include <functional>
#include <string>
#include <vector>

#include "data/batch_source.h"

namespace millrace::data {

/// Where one record puts all fields of a micro-batch, whichever are wanted: as asked for, else in new buffers.
struct Gathered {
    std::vector<tensor::View> fields;  ///< by number of the source's fields
    std::vector<tensor::View> wanted;  ///< in the order of `wanted`
};
Gathered places_of(tape::Builder& builder, const Fields& fields, std::int32_t rows, std::span<const Wanted> wanted);

class ResidentSource : public BatchSource {
public:
    [[nodiscard]] std::int32_t samples(Part part) const override {
        return static_cast<std::int32_t>(order_[index_of(part)].size());
    }
    [[nodiscard]] const Fields& fields() const final { return fields_; }
    base::Status declare(tape::Store& store) final;
    base::Status upload(tape::Store& store) override;

protected:
    /// As declare(), by the functions below.
    virtual base::Status declare_tables(tape::Store& store) = 0;
    /// Has upload() call `fill`.
    void on_upload(std::function<void(tape::Store&)> fill) { fills_.push_back(std::move(fill)); }
    /// Declares a table [1,1,rows,cols] that upload() fills with `values`, which stay until then; none: it is left as it is.
    template <class T>
    tensor::View add_table(tape::Store& store, std::string name, tensor::DType dtype, std::int32_t rows, std::int32_t cols,
                           const std::vector<T>& values) {
        const tensor::View table = store.add_data(std::move(name), dtype, rows, cols);
        on_upload([table, &values](tape::Store& to) {
            if (!values.empty()) to.write(table, values);
        });
        return table;
    }
    /// The table of order_, i32 [1,1,samples(part),1].
    tensor::View add_order(tape::Store& store, Part part);

    Fields fields_;
    std::array<std::vector<std::int32_t>, kPartCount> order_;  ///< rows of the part's tables

private:
    std::vector<std::function<void(tape::Store&)>> fills_;
};

}  // namespace millrace::data
