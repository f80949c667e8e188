# A golden image of a GPU node with the project's own roles. Build time: everything that `make provision` installs.
# Boot time: gpucheck-first-boot.service, which is in the image, verifies the machine that boots it.
#
#   packer init . && packer build -var base_ami=ami-... gpu-node.pkr.hcl       (from this folder, `make help` run once)
#
# The builder needs no GPU: the hardware is declared. Its newest kernel is the one that the module is built for.
packer {
  required_plugins {
    amazon  = { source = "github.com/hashicorp/amazon", version = "~> 1" }
    ansible = { source = "github.com/hashicorp/ansible", version = "~> 1" }
  }
}

variable "base_ami" { type = string }
variable "instance_type" {
  type    = string
  default = "c7i.4xlarge"
}

source "amazon-ebs" "gpu_node" {
  ami_name      = "gpu-node-${formatdate("YYYYMMDDhhmm", timestamp())}"
  instance_type = var.instance_type
  source_ami    = var.base_ami
  ssh_username  = "ubuntu"
}

build {
  sources = ["source.amazon-ebs.gpu_node"]

  provisioner "ansible" {
    playbook_file    = "../../playbooks/image.yml"
    groups           = ["gpu"]
    use_proxy        = false
    command          = "../../.venv/bin/ansible-playbook"
    ansible_env_vars = ["ANSIBLE_CONFIG=../../playbooks/ansible.cfg"]
    extra_arguments  = ["-e", "image_hardware=h100-sxm5-x8", "-e", "image_os=ubuntu-22.04"]
  }

  # What belongs to the builder and not to the machines that come up from its image.
  provisioner "shell" {
    inline = ["sudo cloud-init clean --logs --machine-id"]
  }
}
