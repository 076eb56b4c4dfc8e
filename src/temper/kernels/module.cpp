// The native module: each .cpp file of this folder binds its kernels here.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_formats(nb::module_ &m);

NB_MODULE(_native, m) {
    m.doc() = "Raw-buffer kernels of Temper.";
    bind_formats(m);
}
