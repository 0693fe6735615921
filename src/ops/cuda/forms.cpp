#include "ops/cuda/forms.h"

#include <algorithm>
#include <string>

namespace millrace::ops::cuda {

const Form* choose_form(const Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : forms) {
        if (form.refuses(c, records) != nullptr) continue;
        if (std::ranges::find(c.forms, std::string(subject) + "=" + form.name) != c.forms.end()) return &form;
        const double time = form.predict(c, records);
        if (best == nullptr || time < least) {
            best = &form;
            least = time;
        }
    }
    return best;
}

KernelResult make_form(Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* form = choose_form(c, subject, forms, records);
    if (form == nullptr) return base::Error{std::string("there is no way to do ") + subject + " here"};
    auto made = form->make(c, records);
    if (made.ok()) {
        (*made)->form = form->name;
        (*made)->predicted = form->predict(c, records);
    }
    return made;
}

}  // namespace millrace::ops::cuda
