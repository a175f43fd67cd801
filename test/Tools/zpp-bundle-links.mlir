// A symbolic link to a bundle stays a link, and leads to the new bundle then. One
// that leads nowhere is something else than a bundle.

// RUN: rm -rf %t && mkdir -p %t/there && cd %t && ln -s there/step.zpp link.zpp
// RUN: not zpp-bundle %s -o link.zpp 2>&1 | FileCheck %s --check-prefix=NOWHERE
// NOWHERE: zpp-bundle: error: expected a bundle or nothing at 'link.zpp', but got something else

// RUN: mkdir there/step.zpp && echo '{}' > there/step.zpp/bundle.json
// RUN: zpp-bundle %s -o link.zpp
// RUN: test -L link.zpp && zpp-bundle %s -o other.zpp && diff -r there/step.zpp other.zpp
// RUN: ls -A there | count 1
// RUN: ls -A . | count 3

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
